package coordination

import (
	"context"
	"time"

	"github.com/carillon-mq/carillon/broker/work"
)

const (
	// suspectsTime bounds how long a broker waits for etcd when it reports copies.
	suspectsTime = 5 * time.Second
	// suspectsPace is how long a report waits for the next one, for each of its copies. etcd keeps
	// the last 10,000 revisions, and 10,000 copies take a megabyte of it.
	suspectsPace = 400 * time.Microsecond
	// suspectsRetry is how long after a failure the report is written again.
	suspectsRetry = time.Second
)

// Keep writes the report whenever it has changed, until ctx ends. failed is told of errors, after
// which the report is written again.
func (s *Suspects) Keep(ctx context.Context, write func(ctx context.Context, generation int64, suspects []Suspect) error, failed func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Changed():
		}
		for {
			copies, err := s.write(ctx, write)
			rest := time.Duration(copies) * suspectsPace
			if err != nil {
				if ctx.Err() != nil {
					return
				}
				failed(err)
				rest = suspectsRetry
			}
			if !work.Sleep(ctx, rest) {
				return
			}
			if err == nil {
				break
			}
		}
	}
}

// write writes the report once, and returns how many copies it is of.
func (s *Suspects) write(ctx context.Context, write func(ctx context.Context, generation int64, suspects []Suspect) error) (copies int, err error) {
	ctx, cancel := context.WithTimeout(ctx, suspectsTime)
	defer cancel()
	generation, suspects := s.All()
	return len(suspects), write(ctx, generation, suspects)
}
