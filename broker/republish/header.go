package republish

import "bytes"

// acting are the headers, by how their names begin, that ask a stream for something or say that it
// did something. They were for the stream that has stored the message: another one would refuse the
// message, stage it, or remove others for it.
var acting = [][]byte{
	[]byte("Nats-Batch-"),
	[]byte("Nats-Expected-"),
	[]byte("Nats-Incr"),
	[]byte("Nats-Rollup"),
	[]byte("Nats-Schedule"), // Nats-Scheduler as well
	[]byte("Nats-Stream-Source"),
	[]byte("Nats-TTL"),
	[]byte("Carillon-After"),
	[]byte("Carillon-Records"),
}

// appendKept appends the lines of a header, up to the empty one, that are published again.
func appendKept(dst, header []byte) []byte {
	if !bytes.Contains(header, []byte("\nNats-")) && !bytes.Contains(header, []byte("\nCarillon-")) {
		return append(dst, header...)
	}
	for line := range bytes.SplitAfterSeq(header, []byte("\n")) {
		if !acts(line) {
			dst = append(dst, line...)
		}
	}
	return dst
}

func acts(line []byte) bool {
	for _, name := range acting {
		if bytes.HasPrefix(line, name) {
			return true
		}
	}
	return false
}
