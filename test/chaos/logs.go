package chaos

import (
	"errors"
	"fmt"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/log"
)

// ReadLogs reads all logs, of records and of cursors, below the data folder of a stopped broker.
// The result is by log name.
func ReadLogs(broker, data string) (_ map[string]Copy, err error) {
	d, err := log.OpenDisk(env.OS, data, log.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	names, err := d.Names()
	if err != nil {
		return nil, err
	}
	out := map[string]Copy{}
	for _, name := range names {
		stored, _ := d.Stored(name)
		if stored.Err != nil {
			return nil, fmt.Errorf("%s: log %s: %w", broker, stored.Name, stored.Err)
		}
		m := stored.Meta
		l, err := d.Open(log.Identity{Topic: m.Topic, Shard: m.Shard, Part: m.Part}, m.Start, m.Epoch, m.Spec)
		if err != nil {
			return nil, fmt.Errorf("%s: log %s: %w", broker, stored.Name, err)
		}
		c := Copy{Broker: broker, Shard: m.Shard}
		c.Start, c.End, _ = l.Offsets()
		cursor := l.NewCursor(c.Start)
		for cursor.Next() < c.End {
			view, err := cursor.Read(1 << 20)
			if damage, ok := errors.AsType[*log.CorruptError](err); ok && damage.Next > cursor.Next() {
				c.Damaged = append(c.Damaged, Span{cursor.Next(), damage.Next})
				cursor.Seek(damage.Next)
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("%s: log %s: %w", broker, stored.Name, err)
			}
			for b, ok := view.Next(); ok; b, ok = view.Next() {
				records := b.Records()
				var r log.Record
				for records.Next(&r) {
					if r.Offset >= c.Start {
						c.Records = append(c.Records, Record{Offset: r.Offset, Epoch: b.Epoch(), Time: r.Time, Subject: string(r.Subject), Header: r.Header, Content: string(r.Data)})
					}
				}
				if err := records.Err(); err != nil {
					view.Release()
					return nil, fmt.Errorf("%s: log %s: batch from %d: %w", broker, stored.Name, b.Base(), err)
				}
			}
			view.Release()
		}
		out[stored.Name] = c
	}
	return out, nil
}
