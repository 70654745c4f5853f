package identity

import (
	"hash/maphash"
	"net/url"
	"strconv"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// Pools of brokers are shared by client (work.FairQueue), which is a connection. What a client
// holds beyond its connection, as snapshots, is shared by account: a user or, if there are no
// users, a network. A request that another broker forwards names both in headers, so that it has
// its own turn on the leader, too:
//
//  1. The client's own broker sets the headers, in place of whatever the client wrote there.
//  2. A leader believes them in forwarded requests only. Those without one, of brokers of an
//     earlier version, share one turn, and so does what brokers ask of each other.

// clientHeader names the broker and the number of the client of a forwarded request, and
// accountHeader its account, escaped as a query is.
const (
	clientHeader  = "Carillon-Client"
	accountHeader = "Carillon-Account"
)

// Brokers is the key of what brokers ask for.
const Brokers = 0

var clientSeed = maphash.MakeSeed()

// NameClient returns a message of the client with a number at a broker as it is forwarded: with the
// name of the client. 0: it is no client's, and gets no name.
func NameClient(m *protocol.Message, broker string, client uint64) *protocol.Message {
	if client == 0 {
		return withHeader(m, clientHeader, "")
	}
	return withHeader(m, clientHeader, broker+"/"+strconv.FormatUint(client, 10))
}

// ForwardedKey returns the client that the header of a forwarded request names, as pools tell
// clients apart.
func ForwardedKey(header protocol.Header) uint64 {
	if name, ok := header.Get(clientHeader); ok {
		return maphash.Bytes(clientSeed, name) | 1<<63 // clients of a broker have small numbers
	}
	return Brokers
}

// NameAccount returns a message as it is forwarded with the account of its client.
func NameAccount(m *protocol.Message, account string) *protocol.Message {
	return withHeader(m, accountHeader, url.QueryEscape(account))
}

// ForwardedAccount returns the account that the header of a forwarded request names; empty: none.
func ForwardedAccount(header protocol.Header) string { return valueOf(header, accountHeader) }
