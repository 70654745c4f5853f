//go:build e2e && linux

package hostile

// attack is one way to abuse a broker.
type attack struct {
	name string
	run  func(*force) error // until the force's context ends
	// prepare comes before the bystander measures under attack.
	prepare func(*force) error

	users  bool // clients need a user and a password; the attacker has one
	tls    bool // clients use TLS
	stream bool // the bystander publishes to a stream, too
	ours   bool // nats-server lacks what is attacked
	linked bool // several brokers only
	kills  bool // meanwhile the second of Carillon's brokers is killed, starts again, and has to serve
}

// attacks are all of them, in the order in which they run.
var attacks = []attack{
	{name: "part-of-a-message-before-connect", run: partOfAMessage(false), users: true},
	{name: "part-of-a-message", run: partOfAMessage(true)},
	{name: "large-messages", run: largeMessages},
	{name: "many-tokens", run: manyTokens},
	{name: "queue-groups", run: queueGroups},
	{name: "interest-churn", run: interestChurn},
	{name: "fan-out", run: fanOut},
	{name: "silent-subscribers", run: silentSubscribers},
	{name: "pings", run: pings},
	{name: "connections", run: connections},
	{name: "connections-tls", run: connections, tls: true},
	{name: "wrong-passwords", run: wrongPasswords, users: true},
	{name: "slow-clients", run: slowClients},
	{name: "slow-http", run: slowHTTP},
	{name: "slow-websockets", run: slowWebSockets},
	{name: "api-flood", run: apiFlood, stream: true},
	{name: "pulls", prepare: preparePulls, run: pulls, stream: true},
	{name: "consumer-filters", prepare: hostileStream, run: consumerFilters, stream: true},
	{name: "conditions", prepare: prepareConditions, run: conditions, stream: true},
	{name: "message-ids", prepare: hostileStream, run: messageIDs, stream: true},
	{name: "records-held", prepare: hostileStream, run: recordsHeld, stream: true, ours: true},
	{name: "snapshots-held", prepare: hostileStream, run: snapshotsHeld, stream: true, ours: true},
	{name: "live-queries", run: liveQueries, ours: true},
	{name: "idle-links", run: idleLinks, linked: true, kills: true},
}
