package viewing

import (
	"github.com/carillon-mq/carillon/broker/view"
)

// Declared is a view as it is declared. It never changes.
type Declared struct {
	Name string
	// Made is when it was made, as a revision: a view that is made anew under the name has another.
	Made   int64
	Spec   view.Spec
	Output string            // the Topic for results; empty: none
	Alerts map[string]string // Topics for alerts, by the names of triggers
	User   string            // on whose behalf it reads and writes; empty: that of nobody
}

// Place is where a led shard is.
type Place struct {
	Topic  string // id
	Name   string // of the Topic
	Number int
	Shards int
}

// key is a view with all that decides its results. What was kept for another one is of no use.
type key struct {
	name        string
	made        int64
	fingerprint uint64
}

func keyOf(d *Declared, v *view.View) key { return key{d.Name, d.Made, v.Fingerprint()} }
