// Package metrics is the Prometheus collector of one broker. It reads counters when it is scraped;
// nothing on a message's path knows of it. Names, labels and help texts of all metrics stand here.
//
// When the process dies, all counters begin again at 0.
package metrics
