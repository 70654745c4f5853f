package coordination

import "testing"

// TestNamesOfShardsAreParsed: each name that ShardName makes of a Topic with several shards is
// parsed back, and nothing else is taken for one.
func TestNamesOfShardsAreParsed(t *testing.T) {
	several := &Topic{Name: "a--b", Spec: TopicSpec{Shards: 12}}
	for n := range several.Spec.Shards {
		name := ShardName(several, n)
		if topic, number, ok := ParseShardName(name); !ok || topic != "a--b" || number != n {
			t.Errorf("%s is of %s, number %d: %v", name, topic, number, ok)
		}
	}
	for _, name := range []string{"", "a", "a--", "a--b", "a--01", "a--+1", "a--1 ", "a-1", "--1", "1"} {
		if topic, number, ok := ParseShardName(name); ok {
			t.Errorf("%q is of %s, number %d", name, topic, number)
		}
	}
}
