// An example provider in Go: a cloud in memory that offers machines and addresses.
// Written from proto/groundplane/provider/v1/provider.proto and docs/provider.md alone. Generate the code as docs/provider.md says.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	machines "groundplane.example/provider/gen/groundplane/instances/v1"
	pb "groundplane.example/provider/gen/groundplane/provider/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	listen    = flag.String("listen", "127.0.0.1:7443", "HOST:PORT, or unix:/path")
	name      = flag.String("name", "example", "of the provider")
	machineAt = flag.String("machines", "", "JSON file of machines: [{id, hostname, address}], read at each call")
	stateAt   = flag.String("state", "", "JSON file in which reservations outlive this process")
	addresses = flag.String("addresses", "198.51.100.0/24", "IPv4 CIDR from which addresses are reserved")
)

// A reservation as it is kept. Its key lives as long as it does.
type kept struct {
	ID, Address, Key string
	Tags             []string
}

// What there is. What was changed is on disk before anybody is told.
type provider struct {
	pb.UnimplementedCapabilityServiceServer
	pb.UnimplementedMachineServiceServer
	pb.UnimplementedAddressServiceServer

	pool  netip.Prefix
	mutex sync.Mutex
	state struct {
		Last         int
		Reservations []kept
	}
}

func load(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func (p *provider) save() error {
	text, err := json.Marshal(p.state)
	if err == nil {
		err = os.WriteFile(*stateAt+".partial", text, 0o600)
	}
	if err == nil {
		err = os.Rename(*stateAt+".partial", *stateAt)
	}
	return err // As UNKNOWN, which is treated as UNAVAILABLE.
}

// A page of what has ids: what comes after the one in the token, in the order of ids, and the next token.
func page[T any](items []T, id func(T) string, size uint32, token string) ([]T, string, error) {
	after, ours := strings.CutPrefix(token, "after:")
	if token != "" && (!ours || after == "") {
		return nil, "", status.Error(codes.InvalidArgument, "that is no page token of ours")
	}
	rest := slices.DeleteFunc(slices.Clone(items), func(item T) bool { return id(item) <= after })
	slices.SortFunc(rest, func(a, b T) int { return strings.Compare(id(a), id(b)) })
	if size == 0 || int(size) >= len(rest) {
		return rest, "", nil
	}
	return rest[:size], "after:" + id(rest[size-1]), nil
}

func (p *provider) GetCapabilities(context.Context, *pb.GetCapabilitiesRequest) (*pb.GetCapabilitiesResponse, error) {
	offered := []pb.Capability{pb.Capability_CAPABILITY_MACHINES, pb.Capability_CAPABILITY_ADDRESSES}
	return &pb.GetCapabilitiesResponse{Name: *name, Capabilities: offered, ProvesAbsence: true, AddressFamilies: []string{"IPv4"}}, nil
}

func (p *provider) machines() ([]*machines.Machine, error) {
	var listed []struct{ ID, Hostname, Address string }
	if err := load(*machineAt, &listed); err != nil {
		return nil, status.Errorf(codes.Unavailable, "the machines cannot be read: %v", err)
	}
	var found []*machines.Machine
	for _, machine := range listed {
		address := machines.MachineAddress{Type: machines.AddressType_ADDRESS_TYPE_INTERNAL_IP, Address: machine.Address}
		found = append(found, &machines.Machine{ProviderId: *name + "://" + machine.ID, Hostname: machine.Hostname,
			Power: machines.PowerState_POWER_STATE_ON, Addresses: []*machines.MachineAddress{&address}})
	}
	return found, nil
}

func (p *provider) ListMachines(_ context.Context, r *pb.ListMachinesRequest) (*pb.ListMachinesResponse, error) {
	all, broken := p.machines()
	found, next, err := page(all, (*machines.Machine).GetProviderId, r.PageSize, r.PageToken)
	return &pb.ListMachinesResponse{Machines: found, NextPageToken: next}, cmp.Or(broken, err)
}

func (p *provider) GetMachine(_ context.Context, r *pb.GetMachineRequest) (*pb.GetMachineResponse, error) {
	all, err := p.machines()
	for _, machine := range all {
		if machine.ProviderId == r.ProviderId {
			return &pb.GetMachineResponse{Machine: machine}, nil
		}
	}
	if err == nil {
		err = status.Errorf(codes.NotFound, "there is no machine %s", r.ProviderId)
	}
	return nil, err
}

func (k kept) told() *pb.Reservation {
	return &pb.Reservation{Id: k.ID, Prefix: k.Address + "/32", Tags: k.Tags, State: pb.ReservationState_RESERVATION_STATE_READY}
}

func (p *provider) ListReservations(_ context.Context, r *pb.ListReservationsRequest) (*pb.ListReservationsResponse, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	all := []*pb.Reservation{}
	for _, reservation := range p.state.Reservations {
		all = append(all, reservation.told())
	}
	found, next, err := page(all, (*pb.Reservation).GetId, r.PageSize, r.PageToken)
	return &pb.ListReservationsResponse{Reservations: found, NextPageToken: next}, err
}

func (p *provider) CreateReservation(ctx context.Context, r *pb.CreateReservationRequest) (*pb.CreateReservationResponse, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if r.IdempotencyKey == "" || r.Family != "IPv4" {
		return nil, status.Error(codes.InvalidArgument, "a reservation needs an idempotency key, and is of family IPv4")
	}
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	taken := map[string]bool{}
	for _, reservation := range p.state.Reservations {
		if reservation.Key == r.IdempotencyKey {
			if !slices.Equal(reservation.Tags, r.Tags) {
				return nil, status.Error(codes.FailedPrecondition, "the key was used for another request")
			}
			return &pb.CreateReservationResponse{Reservation: reservation.told()}, nil
		}
		taken[reservation.Address] = true
	}
	free := p.pool.Addr().Next()
	for ; taken[free.String()]; free = free.Next() {
	}
	if !p.pool.Contains(free) {
		return nil, status.Error(codes.ResourceExhausted, "every address is reserved")
	}
	p.state.Last++
	made := kept{fmt.Sprintf("r-%d", p.state.Last), free.String(), r.IdempotencyKey, r.Tags}
	p.state.Reservations = append(p.state.Reservations, made)
	return &pb.CreateReservationResponse{Reservation: made.told()}, p.save()
}

func (p *provider) DeleteReservation(_ context.Context, r *pb.DeleteReservationRequest) (*pb.DeleteReservationResponse, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.state.Reservations = slices.DeleteFunc(p.state.Reservations, func(k kept) bool { return k.ID == r.Id })
	return &pb.DeleteReservationResponse{}, p.save()
}

func main() {
	flag.Parse()
	p := &provider{pool: netip.MustParsePrefix(*addresses).Masked()}
	if err := load(*stateAt, &p.state); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	network, address := "tcp", *listen
	if path, ok := strings.CutPrefix(*listen, "unix:"); ok {
		network, address = "unix", path
		_ = os.Remove(path) // Left over by one that was killed.
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterCapabilityServiceServer(server, p)
	pb.RegisterMachineServiceServer(server, p)
	pb.RegisterAddressServiceServer(server, p)
	log.Fatal(server.Serve(listener))
}
