package forward

import (
	"bytes"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
)

// TestSilentSourcesExpire: a silent source is deleted by the second Expire that finds it silent,
// unless it was heard of in between. What it had kept is below Since.
func TestSilentSourcesExpire(t *testing.T) {
	o := Origins{Since: 5}
	for source := range uint64(1000) {
		from := o.Of(source+1, 1)
		from.Keep(Span{First: 1, Offset: source + 1, Count: 1}, 10)
	}
	o.Expire(100)
	if n := o.Sources(); n != 1000 {
		t.Fatalf("%d sources are left after one look, which may come right after the process was stopped for long", n)
	}
	o.Of(7, 1).Heard = 50 // it had arrived meanwhile, and is handled now
	o.Expire(100)
	if n := o.Sources(); n != 1 {
		t.Errorf("%d sources are left", n)
	}
	if _, _, ok := o.Of(7, 1).Find(1); !ok {
		t.Error("what came from the source that was heard of is forgotten")
	}
	if o.Since != 100 {
		t.Errorf("it says that it knows all since %d", o.Since)
	}
	if from := o.Of(8, 1); o.Knows(from, 99) || !o.Knows(from, 100) {
		t.Error("of a forgotten source it takes messages for new that may have been kept, or none")
	}
	o.Expire(100)
	o.Expire(100)
	if n := o.Sources(); n > 1 {
		t.Errorf("%d sources are left", n)
	}
}

func TestActiveSourcesDoNotExpire(t *testing.T) {
	var o Origins
	for now := int64(0); now < 1000; now += 10 {
		from := o.Of(1, 1)
		from.Heard = now
		o.Expire(now - 30)
		o.Expire(now - 30)
	}
	if o.Sources() != 1 {
		t.Error("it is forgotten")
	}
}

// TestNumbersInADamagedBatchAreNotTakenForNew: a broker restarts, and its log has a damaged batch.
// Numbers of the same source that are higher than those that were read before the damage may stand
// in it: a message with such a number is not taken for new. Of a source that was read behind the
// damage, all numbers before are known.
func TestNumbersInADamagedBatchAreNotTakenForNew(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		fsys := crashfs.New()
		open := func() (*log.Disk, *log.Log) {
			d, err := log.OpenDisk(fsys, "data", log.Options{})
			if err != nil {
				t.Fatal(err)
			}
			l, err := d.Open(log.Identity{Topic: "orders"}, 1, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			return d, l
		}
		d, l := open()
		for _, m := range []struct {
			source, number uint64
			text           string
		}{{7, 1, "first"}, {8, 1, "other"}, {7, 2, "second"}, {8, 2, "another"}} {
			signature := AppendExtension(nil, m.source, 1, []Span{{First: m.number, Count: 1}})
			if _, err := l.Append(&log.Append{Epoch: 1, Extensions: []log.Extension{{Type: ExtensionType, Data: signature}},
				Records: []log.Record{{Time: time.Now().UnixNano(), Subject: []byte("orders"), Data: []byte(m.text)}}}); err != nil {
				t.Fatal(err)
			}
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		file := l.SegmentInfos()[0].File
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if damaged {
			f, err := fsys.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			data := make([]byte, 4096)
			if _, err := f.ReadAt(data, 0); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			if err := fsys.Flip(file, int64(bytes.Index(data, []byte("second")))*8); err != nil {
				t.Fatal(err)
			}
		}
		d, l = open()
		o, err := ReadOrigins(l, time.Now(), Mono())
		if err != nil {
			t.Fatal(err)
		}
		oldest := Mono() - 2*int64(OutboxTime)
		first, other := o.Of(7, 1), o.Of(8, 1)
		if last := first.Last; damaged != (last == 1) {
			t.Errorf("damaged %v: the last number of the first source is %d", damaged, last)
		}
		if o.Knows(first, oldest) == damaged {
			t.Errorf("damaged %v: of the first source it says that it knows all: %v", damaged, !damaged)
		}
		if !o.Knows(other, oldest) {
			t.Errorf("damaged %v: of the second source, which was read behind it, it doesn't know all", damaged)
		}
		_ = d.Close()
	}
}
