// Package websocket has the parts of RFC 6455 that a server of NATS clients needs, as functions of
// bytes: the upgrade, origins, frames in both directions, close statuses. Package session does the
// I/O.
//
// Invariants:
//
//	W1  Decoding allocates nothing, whatever length a header announces. It unmasks payload where it
//	    was read and moves it over the headers in the same pass.
//	W2  The bytes of data frames are one stream: where frames and messages begin says nothing.
//	W3  After the end of a stream (a close frame, or a violation) nothing is decoded.
//	W4  At most one pong waits, for the newest ping, so pings cost a peer more than the broker.
//
// Text frames are taken for binary ones, as nats-server does, and are not checked to be UTF-8. No
// extension is negotiated: permessage-deflate would need buffers of 40 KiB and more for each
// connection, and a pass over each message.
//
// Nothing here keeps state beyond a connection, so a process that dies loses nothing.
package websocket
