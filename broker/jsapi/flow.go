package jsapi

import (
	"bytes"
	"strconv"
)

// FlowPrefix is the prefix of the subjects that answers to flow control requests are published to.
const FlowPrefix = "$JS.FC."

// FlowSubjects is the pattern of all such subjects.
const FlowSubjects = FlowPrefix + ">"

// Flow is the content of the reply subject of a flow control request of a push consumer. After
// parsing, its slices alias the subject.
type Flow struct {
	Stream   []byte
	Consumer []byte
	Token    uint64 // of the request
}

const tokenBase = 36

// AppendSubject appends the reply subject of the request.
func (f *Flow) AppendSubject(dst []byte) []byte {
	dst = append(dst, FlowPrefix...)
	dst = append(dst, f.Stream...)
	dst = append(dst, '.')
	dst = append(dst, f.Consumer...)
	dst = append(dst, '.')
	return strconv.AppendUint(dst, f.Token, tokenBase)
}

// ParseFlowSubject parses a subject written by AppendSubject. It rejects others.
func ParseFlowSubject(subject []byte) (f Flow, ok bool) {
	rest, ok := bytes.CutPrefix(subject, []byte(FlowPrefix))
	if !ok {
		return Flow{}, false
	}
	f.Stream, rest, _ = bytes.Cut(rest, dot)
	f.Consumer, rest, ok = bytes.Cut(rest, dot)
	if !ok || len(f.Stream) == 0 || len(f.Consumer) == 0 {
		return Flow{}, false
	}
	token, err := strconv.ParseUint(string(rest), tokenBase, 64)
	if err != nil || token == 0 {
		return Flow{}, false
	}
	f.Token = token
	return f, true
}

// AppendFlowRequest appends the header block of a flow control request, whose reply subject is that
// of a Flow. The receiver answers it with an empty message once it has handled what came before.
func AppendFlowRequest(dst []byte) []byte { return AppendStatus(dst, "100 FlowControl Request") }
