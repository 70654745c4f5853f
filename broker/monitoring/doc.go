// Package monitoring serves a broker's HTTP port: probes for Kubernetes, Prometheus metrics, /varz
// and /connz for NATS tools, and /topics for the operator.
//
// All of it is read-only, and nothing here keeps state: a process that dies loses nothing.
package monitoring
