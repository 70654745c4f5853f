package work

// Client is a client, as pools tell clients apart: a connection of a user. What a user is, package
// identity says. The zero Client is none, as what brokers ask of each other.
type Client struct{ User, Connection uint64 }
