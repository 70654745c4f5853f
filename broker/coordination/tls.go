package coordination

import "github.com/carillon-mq/carillon/broker/env"

// ParseTLS returns the TLS of a Config from PEM text, for the operator, which has no files.
func ParseTLS(ca, cert, key []byte) (*env.TLS, error) { return env.ParseTLS(ca, cert, key) }
