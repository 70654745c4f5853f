package coordination

import "github.com/carillon-mq/carillon/broker/env"

// ParseTLS makes the TLS of a Config from PEM text, for who has it in no files: the operator.
func ParseTLS(ca, cert, key []byte) (*env.TLS, error) { return env.ParseTLS(ca, cert, key) }
