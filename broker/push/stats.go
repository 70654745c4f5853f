package push

import "time"

// durationBounds are the upper bounds of the buckets of durations, in seconds.
var durationBounds = [...]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

// Stats are counters and gauges.
type Stats struct {
	Endpoints int // of Subscriptions that this broker serves
	Open      int // of these, those that are not reached: their circuit is open
	Requests  int // under way
	Held      int // records in hands
	Bytes     int // of these
	// Answers counts requests by what came of them: Accepted, Refused, Unavailable.
	Answers map[string]uint64
	// Durations counts requests that took at most as long as the key, in seconds; Count and Seconds
	// are of all.
	Durations map[float64]uint64
	Count     uint64
	Seconds   float64
}

var answerNames = map[kind]string{accepted: "Accepted", refusedIt: "Refused", unavailable: "Unavailable"}

// note counts the answer of a request.
func (s *Service) note(a answer, took time.Duration) {
	s.answers[a.kind].Add(1)
	at := 0
	for at < len(durationBounds) && took.Seconds() > durationBounds[at] {
		at++
	}
	s.durations[at].Add(1)
	s.seconds.Add(uint64(max(took, 0)))
}

// Stats returns the service's counters and gauges.
func (s *Service) Stats() Stats {
	stats := Stats{Answers: map[string]uint64{}, Durations: map[float64]uint64{}, Seconds: time.Duration(s.seconds.Load()).Seconds()}
	for kind, name := range answerNames {
		stats.Answers[name] = s.answers[kind].Load()
	}
	for n := range s.durations {
		stats.Count += s.durations[n].Load()
		if n < len(durationBounds) {
			stats.Durations[durationBounds[n]] = stats.Count
		}
	}
	s.mu.Lock()
	all := make([]*endpoint, 0, len(s.endpoints))
	for e := range s.endpoints {
		all = append(all, e)
	}
	stats.Endpoints, stats.Requests, stats.Bytes = len(all), s.requests, s.bytes
	s.mu.Unlock()
	for _, e := range all {
		e.mu.Lock()
		stats.Held += len(e.hand.items)
		if e.hand.circuit.open {
			stats.Open++
		}
		e.mu.Unlock()
	}
	return stats
}
