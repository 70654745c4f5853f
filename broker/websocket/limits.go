package websocket

const (
	// MaxFrame is the most payload in a frame that this broker sends, in bytes. A sender loop writes
	// 64 KiB and one more message at a time, so most of what it writes is one frame. Browsers hand
	// a frame to a program when it has arrived in whole.
	MaxFrame = 128 << 10
	// HeaderRoom is the size of the longest header that this broker sends, in bytes.
	HeaderRoom = 10
	// MaxHead bounds the request of an upgrade in bytes: four long cookies. While it is read it is
	// all that the broker keeps for a client that nobody knows.
	MaxHead = 8 << 10
	// maxControl is the most payload of a control frame in bytes (RFC 6455, section 5.5).
	maxControl = 125
)
