"""An example provider in Python: a cloud in memory that offers everything, machines, addresses, the endpoint and BGP.

Written from proto/groundplane/provider/v1/provider.proto and docs/provider.md alone. Generate the code as docs/provider.md says, then:

    provider.py --listen 127.0.0.1:7443 --machines machines.json --state state.json

Machines are a JSON list of objects: id, hostname, address, power, and whatever else a Machine has. The file is read at each call.
"""
import argparse, contextlib, ipaddress, json, os, pathlib, threading
from concurrent import futures

import grpc
from google.protobuf import json_format
from groundplane.instances.v1 import instances_pb2
from groundplane.provider.v1 import provider_pb2 as pb
from groundplane.provider.v1 import provider_pb2_grpc as rpc

CODE = grpc.StatusCode


class Cloud:
    """What there is. Whoever touches it holds the lock; what `changing` did is on disk before anybody is told."""

    def __init__(self, options):
        self.options, self.lock = options, threading.RLock()
        self.networks = [ipaddress.ip_network(text) for text in options.addresses]
        self.state = {"last": 0, "reservations": {}}
        with contextlib.suppress(FileNotFoundError):
            self.state = json.loads(pathlib.Path(options.state).read_text())

    @contextlib.contextmanager
    def changing(self, context):
        with self.lock:
            if not context.is_active():  # Its caller gave up while it waited for us.
                context.abort(CODE.DEADLINE_EXCEEDED, "too late")
            yield self.state["reservations"]
            partial = self.options.state + ".partial"
            with open(partial, "w") as file:
                json.dump(self.state, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, self.options.state)

    def new_id(self, kind):
        self.state["last"] += 1
        return f"{kind}-{self.state['last']}"

    def machines(self):
        found = {}
        for item in json.loads(pathlib.Path(self.options.machines).read_text()):
            address = {"type": "ADDRESS_TYPE_INTERNAL_IP", "address": item.pop("address")}
            machine = {"providerId": f"{self.options.name}://{item.pop('id')}", "addresses": [address], "power": "POWER_STATE_ON"}
            found[machine["providerId"]] = json_format.ParseDict(machine | item, instances_pb2.Machine())
        return found

    def machine(self, provider_id, context):
        return self.machines().get(provider_id) or context.abort(CODE.NOT_FOUND, f"there is no machine {provider_id}")


def message(identity, kept):
    """A reservation as it is told."""
    held = [pb.Assignment(**assignment) for assignment in kept["assignments"]]
    return pb.Reservation(id=identity, prefix=kept["prefix"], tags=kept["tags"], assignments=held, state=pb.RESERVATION_STATE_READY)


def page(items, request, context):
    """A page of a dict: what comes after the id in the token, in the order of ids, and the next token."""
    begin, mark, after = request.page_token.partition("after:")
    if request.page_token and (begin or not mark or not after):
        context.abort(CODE.INVALID_ARGUMENT, "that is no page token of ours")
    rest = sorted(key for key in items if key > after)
    keys = rest[: request.page_size or 1000]
    return [items[key] for key in keys], f"after:{keys[-1]}" if len(keys) < len(rest) else ""


class Provider(rpc.CapabilityServiceServicer, rpc.MachineServiceServicer, rpc.AddressServiceServicer, rpc.BgpFabricServiceServicer):
    def __init__(self, cloud):
        self.cloud = cloud

    def GetCapabilities(self, request, context):
        offered = [pb.CAPABILITY_MACHINES, pb.CAPABILITY_ADDRESSES, pb.CAPABILITY_ENDPOINT, pb.CAPABILITY_BGP]
        families = sorted({f"IPv{network.version}" for network in self.cloud.networks})
        return pb.GetCapabilitiesResponse(name=self.cloud.options.name, capabilities=offered, calls_per_move=1, proves_absence=True,
                                          address_families=families, moves_atomically=True, replaces_tags=True)

    def ListMachines(self, request, context):
        machines, token = page(self.cloud.machines(), request, context)
        return pb.ListMachinesResponse(machines=machines, next_page_token=token)

    def GetMachine(self, request, context):
        return pb.GetMachineResponse(machine=self.cloud.machine(request.provider_id, context))

    def ListReservations(self, request, context):
        with self.cloud.lock:
            everything = {key: message(key, kept) for key, kept in self.cloud.state["reservations"].items()}
        reservations, token = page(everything, request, context)
        return pb.ListReservationsResponse(reservations=reservations, next_page_token=token)

    def CreateReservation(self, request, context):
        wanted = {"family": request.family, "tags": list(request.tags)}
        if not request.idempotency_key:
            context.abort(CODE.INVALID_ARGUMENT, "a reservation needs an idempotency key")
        with self.cloud.changing(context) as reservations:
            for key, kept in reservations.items():
                if kept["key"] == request.idempotency_key:
                    if any(kept[name] != value for name, value in wanted.items()):
                        context.abort(CODE.FAILED_PRECONDITION, "the key was used for another request")
                    return pb.CreateReservationResponse(reservation=message(key, kept))
            networks = [network for network in self.cloud.networks if f"IPv{network.version}" == request.family]
            if not networks:
                context.abort(CODE.INVALID_ARGUMENT, f"there is no family {request.family!r}")
            taken = {kept["prefix"] for kept in reservations.values()}
            prefixes = (str(ipaddress.ip_network(address)) for network in networks for address in network.hosts())
            free = next((prefix for prefix in prefixes if prefix not in taken), None)
            if free is None:
                context.abort(CODE.RESOURCE_EXHAUSTED, "every address is reserved")
            key = self.cloud.new_id("r")
            reservations[key] = wanted | {"key": request.idempotency_key, "prefix": free, "assignments": []}
            return pb.CreateReservationResponse(reservation=message(key, reservations[key]))

    def DeleteReservation(self, request, context):
        with self.cloud.changing(context) as reservations:
            reservations.pop(request.id, None)
        return pb.DeleteReservationResponse()

    def ReplaceTags(self, request, context):
        with self.cloud.changing(context) as reservations:
            kept = reservations.get(request.id) or context.abort(CODE.NOT_FOUND, f"there is no reservation {request.id}")
            kept["tags"] = list(request.tags)
            return pb.ReplaceTagsResponse(reservation=message(request.id, kept))

    def GetEndpoint(self, request, context):
        with self.cloud.lock:
            everything = list(self.cloud.state["reservations"].values())
        tagged = [kept for kept in everything if request.tag in kept["tags"]]
        addressed = [kept for kept in everything if kept["prefix"].split("/")[0] == request.address]
        found = {"tag": tagged, "address": addressed, None: []}[request.WhichOneof("selector")]
        if len(found) > 1:
            context.abort(CODE.FAILED_PRECONDITION, f"{len(found)} reservations carry the tag")
        if not found:
            context.abort(CODE.NOT_FOUND, "no reservation is meant by that")
        return pb.GetEndpointResponse(address=found[0]["prefix"].split("/")[0], assignments=message("", found[0]).assignments)

    def give(self, request, context, from_anyone):
        self.cloud.machine(request.provider_id, context)
        with self.cloud.changing(context) as reservations:
            of_address = (kept for kept in reservations.values() if kept["prefix"].split("/")[0] == request.address)
            kept = next(of_address, None) or context.abort(CODE.NOT_FOUND, f"there is no address {request.address}")
            if [held["provider_id"] for held in kept["assignments"]] != [request.provider_id]:
                if kept["assignments"] and not from_anyone:
                    context.abort(CODE.ALREADY_EXISTS, "another machine holds it")
                kept["assignments"] = [{"id": self.cloud.new_id("a"), "provider_id": request.provider_id}]
            return pb.Assignment(**kept["assignments"][0])

    def Assign(self, request, context):
        return pb.AssignResponse(assignment=self.give(request, context, from_anyone=False))

    def Reassign(self, request, context):
        return pb.ReassignResponse(assignment=self.give(request, context, from_anyone=True))

    def Unassign(self, request, context):
        with self.cloud.changing(context) as reservations:
            for kept in reservations.values():
                if request.assignment_id in [held["id"] for held in kept["assignments"]]:
                    kept["assignments"] = [held for held in kept["assignments"] if held["id"] != request.assignment_id]
                    return pb.UnassignResponse()
        context.abort(CODE.NOT_FOUND, "there is no such assignment")

    def GetProject(self, request, context):
        return pb.GetProjectResponse(enabled=True, local_asn=65000)

    def EnableProject(self, request, context):
        return pb.EnableProjectResponse(project=self.GetProject(None, context))

    def ListSessions(self, request, context):
        return pb.ListSessionsResponse(next_page_token=page({}, request, context)[1])

    def ListNeighbors(self, request, context):
        table = pb.Neighbor(family="IPv4", local_asn=65000, peer_asn=65530, peer_addresses=["169.254.255.1", "169.254.255.2"])
        return pb.ListNeighborsResponse(neighbors=[table])


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", required=True, help="HOST:PORT, or unix:/path")
    parser.add_argument("--name", default="example")
    parser.add_argument("--machines", required=True, help="JSON file of machines")
    parser.add_argument("--state", required=True, help="JSON file in which reservations outlive this process")
    parser.add_argument("--addresses", action="append", required=True, help="CIDR from which addresses are reserved")
    parser.add_argument("--workers", type=int, default=16, help="calls at once")
    return parser


def serve(chosen, *interceptors):
    server = grpc.server(futures.ThreadPoolExecutor(chosen.workers), interceptors=interceptors)
    provider = Provider(Cloud(chosen))
    for service in ("Capability", "Machine", "Address", "BgpFabric"):
        getattr(rpc, f"add_{service}ServiceServicer_to_server")(provider, server)
    server.add_insecure_port(chosen.listen)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    serve(options().parse_args())
