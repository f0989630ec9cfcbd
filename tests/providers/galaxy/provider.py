"""An example of galaxy's contract (proto/ip_provider.proto): floating addresses on nodes, kept in a JSON file.

AssignIP moves an address that another node has; both calls may arrive twice. `--nodes` are those that there are.
"""
import argparse, contextlib, json, os, pathlib, threading
from concurrent import futures

import grpc
import ip_provider_pb2 as pb
import ip_provider_pb2_grpc as rpc


class Provider(rpc.IPProviderServiceServicer):
    def __init__(self, nodes, state):
        self.nodes, self.path, self.lock, self.holders = nodes, pathlib.Path(state), threading.Lock(), {}
        with contextlib.suppress(FileNotFoundError):
            self.holders = json.loads(self.path.read_text())

    def keep(self):
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(self.holders))
        os.replace(partial, self.path)

    def AssignIP(self, request, context):
        if request.node_name not in self.nodes:
            return pb.AssignIPReply(success=False, msg=f"there is no node {request.node_name}")
        with self.lock:
            self.holders[request.IP_address] = request.node_name
            self.keep()
        return pb.AssignIPReply(success=True)

    def UnAssignIP(self, request, context):
        with self.lock:
            # Of a node that has it no more, this is late news: whoever has it now keeps it. An empty name means whoever has it.
            if self.holders.get(request.IP_address) == request.node_name or not request.node_name:
                self.holders.pop(request.IP_address, None)
                self.keep()
        return pb.UnAssignIPReply(success=True)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--listen", required=True, help="HOST:PORT, or unix:/path")
parser.add_argument("--state", required=True, help="JSON file of address: node")
parser.add_argument("--nodes", nargs="+", default=[])
options = parser.parse_args()
server = grpc.server(futures.ThreadPoolExecutor(4))
rpc.add_IPProviderServiceServicer_to_server(Provider(options.nodes, options.state), server)
server.add_insecure_port(options.listen)
server.start()
server.wait_for_termination()
