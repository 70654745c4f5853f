package push

import "time"

// Bounds of pushes, each with its reason.
const (
	// defaultConcurrency is enough for some hundred requests a second at 20 ms each.
	defaultConcurrency = 8
	defaultTimeout     = 10 * time.Second
	// defaultBatchBytes is the size of a batch whose spec has none: small beside what servers take.
	defaultBatchBytes = 1 << 20

	// handRecords bounds the records in the hand of an endpoint, at least fewRecords of them: enough
	// to find other subjects while some wait, and few to hand over again under another leader.
	fewRecords  = 32
	handRecords = 2048
	// handBytes bounds their bytes. One record may exceed it.
	handBytes = 4 << 20
	// openLines is how many subjects an endpoint whose circuit is open has in its hand, and openBytes
	// bounds the bytes before the last record there: more than one subject, so that a record that
	// breaks the endpoint is not the only probe.
	openLines = 4
	openBytes = 256 << 10
	// probeTime is how long a record is probed, the only subject there, before its probes count: a
	// record that breaks the endpoint ends, and an outage is over by then, or refuses connections.
	probeTime = time.Hour

	// allBytes bounds the bytes in all hands of a broker: a tenth of the smallest profile's memory.
	// An endpoint may have an eighth of what is left (bytesShare), so that a few slow ones never take
	// all of it.
	// An endpoint whose circuit is open may have an eighth of what is left of half of them.
	// spareBytes are beyond them, for hands that are empty: such a hand may take one record.
	allBytes   = 48 << 20
	bytesShare = 8
	spareBytes = 16 << 20
	// allRequests bounds the requests under way of a broker. With TLS each takes up to 100 KiB. An
	// endpoint may have a quarter of what is left (requestShare). The last spareRequests are for
	// endpoints that have none.
	allRequests   = 512
	spareRequests = 128
	requestShare  = 4
	// wokenAtOnce is how many endpoints are looked at when others leave room.
	wokenAtOnce = 64

	// circuitFailures is how many failures in a row open a circuit: more than a lost connection
	// causes, and few to count as attempts.
	circuitFailures = 5
	// circuitFirst and circuitLast bound the pause of an open circuit. Each failed probe doubles it.
	circuitFirst = time.Second
	circuitLast  = time.Minute
	// retryAfterLast bounds the pause that an endpoint asks for, so that a wrong answer does not stop
	// a Subscription for good.
	retryAfterLast = 10 * time.Minute
	// retryFirst and retryLast bound the pause before a record is sent again if the spec has no
	// backoff. Each attempt doubles it.
	retryFirst = time.Second
	retryLast  = 30 * time.Second
	// refusals is how many refusals in a row are reported as the state of the endpoint.
	refusals = 5

	// dialTimeout bounds the making of a connection, and shakeTimeout that of its TLS.
	dialTimeout  = 5 * time.Second
	shakeTimeout = 5 * time.Second
	// alertTime is how long a request that can't be written waits to read why: that has arrived before
	// the reset of the connection.
	alertTime = 100 * time.Millisecond
	// idleTimeout is when an unused connection is closed: each holds two goroutines. idleConnections
	// bounds them, and idlePerHost those to one address.
	idleTimeout     = 15 * time.Second
	idleConnections = 256
	idlePerHost     = 16
	// answerHeader bounds the header of an answer, and answerBody what is read of its body, both in
	// bytes. answerTime bounds the time for that body: it decides nothing.
	answerHeader = 16 << 10
	answerBody   = 4 << 10
	answerTime   = time.Second
	// secretBytes bounds a file with a value or with CAs, and headerBytes the value of a header:
	// servers take 8 KiB or more for all of them. knownSecrets bounds the files that are remembered.
	secretBytes  = 256 << 10
	headerBytes  = 4 << 10
	knownSecrets = 256
	// ownTransports bounds the endpoints with CAs or server names of their own whose connections are
	// kept. Beyond it all of them are made anew.
	ownTransports = 64
	// missingPause is how long an endpoint waits for a value that is missing before it looks again.
	missingPause = 5 * time.Second
	// rawHeader bounds the headers of a record in a request, in bytes: servers take 8 KiB or more.
	rawHeader = 6 << 10
	// answerText bounds what is kept of an answer, for people.
	answerText = 256

	// lookUpTime is how long the addresses of this cluster's own hosts are remembered, lookUpAgain how
	// long if one was not found, and lookUpLimit how long looking up all of them may take.
	lookUpTime  = 30 * time.Second
	lookUpAgain = 5 * time.Second
	lookUpLimit = time.Second
	// recorded is how long after a drain the acks are given time to be written: they reach the state
	// log within 50 ms.
	recorded = 100 * time.Millisecond
)
