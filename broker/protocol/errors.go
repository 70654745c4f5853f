package protocol

import "strings"

// Error is a client's error that is reported by -ERR. The texts are those of nats-server: client
// libraries compare them, and most close the connection on an unknown text.
type Error struct {
	text   string
	detail string
	closes bool
}

// Text returns the text in the quotes of the -ERR line.
func (e *Error) Text() string { return e.text }

// Closes reports whether the connection is closed after the -ERR line.
func (e *Error) Closes() bool { return e.closes }

// Error returns the text and, if set, the detail, for logs.
func (e *Error) Error() string {
	if e.detail == "" {
		return e.text
	}
	return e.text + ": " + e.detail
}

// Is compares texts and ignores details.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.text == e.text
}

// The errors of Next and ParseConnect. ErrParser represents all with its text.
var (
	ErrUnknownOperation = &Error{text: "Unknown Protocol Operation", closes: true}
	ErrMaxControlLine   = &Error{text: "maximum control line exceeded", closes: true}
	ErrMaxPayload       = &Error{text: "Maximum Payload Violation", closes: true}
	ErrParser           = parserError("")

	errPayloadEnd   = &Error{text: "Unknown Protocol Operation", detail: "no CRLF after the payload: does its size match?", closes: true}
	errArgumentCR   = parserError("carriage return inside a control line")
	errPubArgs      = parserError("PUB takes <subject> [reply] <size>")
	errPubSize      = parserError("PUB: the size is not a number of at most nine digits")
	errHPubArgs     = parserError("HPUB takes <subject> [reply] <header size> <total size>")
	errHPubHeader   = parserError("HPUB: the header size is not a number of at most nine digits")
	errHPubTotal    = parserError("HPUB: the total size is not a number of at most nine digits")
	errHPubExceeds  = parserError("HPUB: the header size is larger than the total size")
	errSubArgs      = parserError("SUB takes <subject> [queue group] <sid>")
	errUnsubArgs    = parserError("UNSUB takes <sid> [max]")
	errConnectJSON  = parserError("CONNECT: not a JSON object with fields of the right types")
	errConnectEmpty = parserError("CONNECT takes a JSON object")
)

func parserError(detail string) *Error {
	return &Error{text: "Parser Error", detail: detail, closes: true}
}

// Errors that a session detects. They are here so that all texts are in one place.
var (
	ErrAuthorization      = &Error{text: "Authorization Violation", closes: true}
	ErrAuthTimeout        = &Error{text: "Authentication Timeout", closes: true}
	ErrUserExpired        = &Error{text: "User Authentication Expired", closes: true}
	ErrUserRevoked        = &Error{text: "User Authentication Revoked", closes: true}
	ErrMaxUserConnections = &Error{text: "maximum account active connections exceeded", closes: true}
	ErrTLSRequired        = &Error{text: "Secure Connection - TLS Required", closes: true}
	// ErrSlowProducer has a text after which clients connect again; nats-server has none for it.
	ErrSlowProducer               = &Error{text: "Stale Connection", detail: "others waited for the room of an operation that arrived too slowly", closes: true}
	ErrStaleConnection            = &Error{text: "Stale Connection", closes: true}
	ErrMaxConnections             = &Error{text: "maximum connections exceeded", closes: true}
	ErrMaxSubscriptions           = &Error{text: "maximum subscriptions exceeded"}
	ErrInvalidSubject             = &Error{text: "Invalid Subject"}
	ErrInvalidPublishSubject      = &Error{text: "Invalid Publish Subject"}
	ErrInvalidClientProtocol      = &Error{text: "invalid client protocol", closes: true}
	ErrHeadersNotSupported        = &Error{text: "message headers not supported", closes: true}
	ErrNoRespondersRequireHeaders = &Error{text: "no responders requires headers support", closes: true}
)

// PublishViolation is the error of a client that may not publish on the subject.
func PublishViolation(subject []byte) *Error {
	return &Error{text: `Permissions Violation for Publish to "` + string(subject) + `"`}
}

// NotDeclared is the error of a client that publishes a message whose attributes of the subject
// were not set. It begins as PublishViolation does, after which clients stay connected.
func NotDeclared(subject []byte, why string) *Error {
	return &Error{text: `Permissions Violation for Publish to "` + string(subject) + `": ` + strings.ReplaceAll(why, "'", "’")}
}

// ReplyViolation is the error of a client that publishes with a reply subject which clients may not
// choose.
func ReplyViolation(reply []byte) *Error {
	return &Error{text: `Permissions Violation for Publish with Reply of "` + string(reply) + `"`}
}

// SubscribeViolation is the error of a client that may not subscribe to the pattern, in the queue
// group or, if it is empty, in none.
func SubscribeViolation(pattern, queue []byte) *Error {
	text := `Permissions Violation for Subscription to "` + string(pattern) + `"`
	if len(queue) > 0 {
		text += ` using queue "` + string(queue) + `"`
	}
	return &Error{text: text}
}

// TooManyTokens is the error of a client that subscribes to a pattern with too many tokens.
func TooManyTokens(pattern []byte) *Error {
	return &Error{text: `Permissions Violation for Subscription to "` + string(pattern) + `", too many tokens`}
}
