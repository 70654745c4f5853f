package protocol

import (
	"regexp"
	"strconv"
	"strings"
)

// flatOp is an Op without pointers, comparable with ==.
type flatOp struct {
	Verb                       Verb
	HasHeader                  bool
	Max, Header                int
	Subject, Reply, Queue, SID string
	Data, JSON                 string
}

func flatten(op *Op) flatOp {
	return flatOp{
		Verb: op.Verb, HasHeader: op.HasHeader, Max: op.Max, Header: op.Header,
		Subject: string(op.Subject), Reply: string(op.Reply), Queue: string(op.Queue), SID: string(op.SID),
		Data: string(op.Data), JSON: string(op.JSON),
	}
}

// reference is the parser that Next is compared with. It is slow and simple, and was written from
// the protocol's description with strings and regular expressions. It returns the operations of
// input, the rest, and the -ERR text that ends the stream, if any.
func reference(input string, lim Limits) (ops []flatOp, rest, errText string) {
	for input != "" {
		op, n, errText := referenceOne(input, lim)
		if errText != "" || n == 0 {
			return ops, input, errText
		}
		ops = append(ops, op)
		input = input[n:]
	}
	return ops, "", ""
}

var (
	referenceVerbs  = []string{"HPUB ", "HPUB\t", "PUB ", "PUB\t", "SUB ", "SUB\t", "UNSUB ", "UNSUB\t", "-ERR ", "-ERR\t", "PING", "PONG", "+OK", "CONNECT", "INFO"}
	referenceSize   = regexp.MustCompile(`^[0-9]{1,9}$`)
	referenceSpaces = regexp.MustCompile(`[ \t]+`)
)

func referenceOne(input string, lim Limits) (op flatOp, n int, errText string) {
	verb, partial := "", false
	for _, v := range referenceVerbs {
		head := asciiUpper(input[:min(len(v), len(input))])
		if head == v {
			verb = v
		} else if strings.HasPrefix(v, head) {
			partial = true
		}
	}
	if verb == "" {
		if partial {
			return op, 0, ""
		}
		return op, 0, "Unknown Protocol Operation"
	}

	arg, after, whole := strings.Cut(input[len(verb):], "\n")
	arg = strings.TrimSuffix(arg, "\r")
	if len(arg) > lim.ControlLine {
		return op, 0, "maximum control line exceeded"
	}
	if !whole {
		return op, 0, ""
	}
	n = len(input) - len(after)
	spaced := strings.Trim(arg, " \t")
	var f []string
	if spaced != "" {
		f = referenceSpaces.Split(spaced, -1)
	}
	bad := strings.Contains(arg, "\r")

	switch strings.TrimRight(verb, " \t") {
	case "PING":
		return flatOp{Verb: VerbPing}, n, ""
	case "PONG":
		return flatOp{Verb: VerbPong}, n, ""
	case "+OK":
		return flatOp{Verb: VerbOK}, n, ""
	case "-ERR":
		return flatOp{Verb: VerbErr, Data: spaced}, n, ""
	case "INFO":
		return flatOp{Verb: VerbInfo, JSON: spaced}, n, ""
	case "CONNECT":
		return flatOp{Verb: VerbConnect, JSON: spaced}, n, ""
	case "SUB":
		switch {
		case len(f) == 2 && !bad:
			return flatOp{Verb: VerbSub, Subject: f[0], SID: f[1]}, n, ""
		case len(f) == 3 && !bad:
			return flatOp{Verb: VerbSub, Subject: f[0], Queue: f[1], SID: f[2]}, n, ""
		}
	case "UNSUB":
		switch {
		case len(f) == 1 && !bad:
			return flatOp{Verb: VerbUnsub, SID: f[0]}, n, ""
		case len(f) == 2 && !bad:
			op = flatOp{Verb: VerbUnsub, SID: f[0]}
			if referenceSize.MatchString(f[1]) {
				op.Max, _ = strconv.Atoi(f[1])
			}
			return op, n, ""
		}
	case "PUB":
		if len(f) == 2 {
			f = []string{f[0], "", "0", f[1]}
		} else if len(f) == 3 {
			f = []string{f[0], f[1], "0", f[2]}
		} else {
			bad = true
		}
		return referencePayload(false, f, bad, after, n, lim)
	case "HPUB":
		if len(f) == 3 {
			f = []string{f[0], "", f[1], f[2]}
		} else if len(f) != 4 {
			bad = true
		}
		return referencePayload(true, f, bad, after, n, lim)
	}
	return op, 0, "Parser Error"
}

// referencePayload parses f: subject, reply, header size, total size.
func referencePayload(hasHeader bool, f []string, bad bool, after string, n int, lim Limits) (flatOp, int, string) {
	if bad || !referenceSize.MatchString(f[2]) || !referenceSize.MatchString(f[3]) {
		return flatOp{}, 0, "Parser Error"
	}
	header, _ := strconv.Atoi(f[2])
	total, _ := strconv.Atoi(f[3])
	if header > total {
		return flatOp{}, 0, "Parser Error"
	}
	if total > lim.Payload {
		return flatOp{}, 0, "Maximum Payload Violation"
	}
	if len(after) > total {
		if end := after[total:]; !strings.HasPrefix(end, "\r\n") && end != "\r" {
			return flatOp{}, 0, "Unknown Protocol Operation"
		}
	}
	if len(after) < total+2 {
		return flatOp{}, 0, ""
	}
	op := flatOp{Verb: VerbPub, HasHeader: hasHeader, Header: header, Subject: f[0], Reply: f[1], Data: after[:total]}
	return op, n + total + 2, ""
}

// asciiUpper upper-cases a-z only; strings.ToUpper also changes non-ASCII letters.
func asciiUpper(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'a' <= c && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}
