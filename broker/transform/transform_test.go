package transform

import (
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/subject"
)

// TestSubjects has the results of nats-server 2.15, whose transforms were asked for each of them.
func TestSubjects(t *testing.T) {
	for _, test := range []struct{ source, destination, subject, want string }{
		{"a.*", "b.$1", "a.x", "b.x"},
		{"a.*.*", "b.{{wildcard(2)}}.{{ Wildcard( 1 ) }}", "a.x.y", "b.y.x"},
		{"a.>", "b.>", "a.x.y", "b.x.y"},
		{"a.*.>", "$1.b.>", "a.x.y.z", "x.b.y.z"},
		{"", "b.>", "a.x", "b.a.x"},
		{">", ">", "a.x", "a.x"},
		{"a", "b", "a", "b"},
		{"a", "$X.b", "a", "$X.b"},
		{"*.*", "{{partition(10,1,2)}}.$1", "foo.bar", "0.foo"},
		{"*.*", "p.{{partition(10)}}", "foo.bar", "p.6"},
		{"a", "p.{{partition(3)}}", "a", "p.1"},
		{"*", "{{partition(0,1)}}", "a", "0"},
		{"*", "{{split(1,-)}}", "-a-b--c-", "a.b.c"},
		{"*", "{{splitFromLeft(1,3)}}", "12345", "123.45"},
		{"*", "{{SplitFromRight(1, 3)}}", "12345", "12.345"},
		{"*", "{{sliceFromLeft(1,3)}}", "1234567890", "123.456.789.0"},
		{"*", "{{sliceFromRight(1,3)}}", "1234567890", "1.234.567.890"},
		{"*", "{{sliceFromLeft(1,2)}}", "1234", "12.34"},
		{"*", "{{sliceFromRight(1,2)}}", "1234", "12.34"},
		{"*", "{{left(1,2)}}.{{right(1,2)}}", "1234", "12.34"},
		{"*", "{{left(1,9)}}", "1234", "1234"},
		{"*", "x.{{random(1)}}", "a", "x.0"},
		// What can't be mapped.
		{"a.*", "b.$1", "b.x", ""},
		{"a.*", "b.$1", "a.x.y", ""},
		{"*", "{{split(1,-)}}", "-", ""},
		{"*", "$1", ">", ""},
		{"*", "$1.$1", strings.Repeat("x", MaxSubject/2), ""},
	} {
		mapped, err := New(test.source, test.destination)
		if err != nil {
			t.Errorf("%s to %s: %v", test.source, test.destination, err)
			continue
		}
		got, ok := mapped.Apply([]byte("before:"), []byte(test.subject))
		if string(got) != "before:"+test.want || ok != (test.want != "") {
			t.Errorf("%s to %s: %s becomes %s (%v), want %s", test.source, test.destination, test.subject, got, ok, test.want)
		}
		if ok && !subject.Matches([]byte(mapped.Pattern()), []byte(test.want)) {
			t.Errorf("%s to %s: %s does not match the pattern %s", test.source, test.destination, test.want, mapped.Pattern())
		}
	}
}

func TestWithoutADestinationNothingIsMapped(t *testing.T) {
	if mapped, err := New("a", ""); mapped != nil || err != nil {
		t.Errorf("got %v, %v", mapped, err)
	}
}

func TestRefusals(t *testing.T) {
	for _, test := range []struct{ source, destination, want string }{
		{"a.*", "b.*", "invalid subject"},
		{"a.>", "b", "invalid subject"},
		{"a", "b.>", "invalid subject"},
		{"a..b", "b", "invalid subject"},
		{"*", "b..c", "invalid mapping destination: invalid transform"},
		{"a.>", "b.>.c", "invalid mapping destination: invalid transform in >"},
		{"*", "b c", "invalid mapping destination: invalid transform"},
		{"*", "$2", "invalid mapping destination: wildcard index out of range in $2: [2]"},
		{"*", "{{wildcard(2)}}", "invalid mapping destination: wildcard index out of range in {{wildcard(2)}}: [2]"},
		{"*", "{{wildcard()}}", "invalid mapping destination: not enough arguments passed to the function in {{wildcard()}}"},
		{"*", "{{wildcard(1,2)}}", "invalid mapping destination: too many arguments passed to the function in {{wildcard(1,2)}}"},
		{"*", "{{wildcard(x)}}", "invalid mapping destination: function argument is invalid or in the wrong format in {{wildcard(x)}}"},
		{"*", "{{left(1)}}", "invalid mapping destination: not enough arguments passed to the function in {{left(1)}}"},
		{"*", "{{split(1)}}", "invalid mapping destination: not enough arguments passed to the function in {{split(1)}}"},
		{"a", "$1", "invalid mapping destination: wildcard index out of range in $1"},
		{"*", "{{nothing(1)}}", "invalid mapping destination: unknown function in {{nothing(1)}}"},
		{"*", "{{nothing}}", "invalid mapping destination: unknown function in {{nothing}}"},
		{"*", "{{partition(2,3)}}", "invalid mapping destination: wildcard index out of range in {{partition(2,3)}}: [3]"},
		{"*", strings.Repeat("x", MaxDestination+1), "a destination has at most 1024 bytes"},
	} {
		if _, err := New(test.source, test.destination); err == nil || err.Error() != test.want {
			t.Errorf("%s to %s: %v, want %s", test.source, test.destination, err, test.want)
		}
	}
}

func TestPatternsOfDestinations(t *testing.T) {
	for _, test := range []struct{ source, destination, want string }{
		{"a", "b", "b"},
		{"a.*.>", "b.$1.c.>", "b.*.c.>"},
		{"a.*", "b.{{left(1,2)}}.{{partition(3,1)}}", "b.*.*"},
		{"a.*", "b.{{split(1,-)}}.c", "b.>"},
		{">", ">", ">"},
	} {
		mapped, err := New(test.source, test.destination)
		if err != nil || mapped.Pattern() != test.want {
			t.Errorf("%s to %s: %v %s, want %s", test.source, test.destination, err, mapped.Pattern(), test.want)
		}
	}
}
