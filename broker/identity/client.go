package identity

import (
	"bytes"
	"hash/maphash"
	"net/url"
	"strconv"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// Pools of brokers are shared by account, and what an account has of them by its connections
// (work.FairQueue). An account is a user or, if there are no users, a network. What a client holds
// beyond its connection, as snapshots, is shared by account, too. A request that another broker
// forwards names both in headers, so that it has its own turn on the leader, too:
//
//  1. The client's own broker sets the headers, in place of whatever the client wrote there.
//  2. A leader believes them in forwarded requests only. What brokers ask of each other names
//     nobody, and shares one turn.
//  3. Brokers of an earlier version name the connection and no account. Each such connection counts
//     as an account. The account stands behind the connection in one header, and not in the header
//     of snapshots and pulls, which those brokers pass on as a client wrote it.

// clientHeader names the broker, the number of the connection and, behind a space, the account of
// the client of a forwarded request. accountHeader names the account only, of snapshots and pulls.
// Accounts are escaped as a query is.
const (
	clientHeader  = "Carillon-Client"
	accountHeader = "Carillon-Account"
)

var clientSeed = maphash.MakeSeed()

// ClientOf returns the client with a connection to this broker, as pools tell clients apart.
func ClientOf(account string, connection uint64) work.Client {
	return work.Client{User: maphash.String(clientSeed, account), Connection: connection}
}

// NameClient returns a message of the connection with a number at a broker as it is forwarded: with
// the name of the client. 0: it is no client's, and gets no name.
func NameClient(m *protocol.Message, broker string, connection uint64, account string) *protocol.Message {
	if connection == 0 {
		return withHeader(m, clientHeader, "")
	}
	name := broker + "/" + strconv.FormatUint(connection, 10)
	if account != "" {
		name += " " + url.QueryEscape(account)
	}
	return withHeader(m, clientHeader, name)
}

// ForwardedClient returns the client that the header of a forwarded request names, as pools tell
// clients apart; the zero Client: brokers.
func ForwardedClient(header protocol.Header) work.Client {
	name, ok := header.Get(clientHeader)
	if !ok {
		return work.Client{}
	}
	name, escaped, _ := bytes.Cut(name, []byte{' '})
	connection := maphash.Bytes(clientSeed, name) | 1<<63 // connections of a broker have small numbers
	account, err := url.QueryUnescape(string(escaped))
	if err != nil || account == "" {
		return work.Client{User: connection, Connection: connection}
	}
	return ClientOf(account, connection)
}

// NameAccount returns a message as it is forwarded with the account of its client.
func NameAccount(m *protocol.Message, account string) *protocol.Message {
	return withHeader(m, accountHeader, url.QueryEscape(account))
}

// ForwardedAccount returns the account that the header of a forwarded request names; empty: none.
func ForwardedAccount(header protocol.Header) string { return valueOf(header, accountHeader) }
