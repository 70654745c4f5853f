package quota

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Whole is the demand for the whole limit.
const Whole = 1<<16 - 1

// Demand is what the clients of one broker demand of a user's limits, in parts of Whole.
type Demand struct{ Messages, Bytes uint16 }

// Use is a user's demand at one broker.
type Use struct {
	User string
	Demand
}

// A report has one byte that is 1 if users were left out, and of each user the length of its name
// (u16), the name, and both demands (u16).
const useSize = 2 + 2 + 2

var errTruncated = errors.New("it ends within a user")

// encode returns the report of these users, whose order it changes. It leaves out the ones that
// demand least beyond the bounds, and returns how many are in it.
func encode(uses []Use) (report []byte, named int) {
	size := 1
	for i := range uses {
		size += useSize + len(uses[i].User)
	}
	if len(uses) > MaxUsers || size > MaxReport {
		slices.SortFunc(uses, func(a, b Use) int {
			return cmp.Compare(max(b.Messages, b.Bytes), max(a.Messages, a.Bytes))
		})
	}
	report = make([]byte, 1, min(size, MaxReport))
	for _, u := range uses {
		if named == MaxUsers || len(report)+useSize+len(u.User) > MaxReport {
			report[0] = 1
			break
		}
		report = binary.BigEndian.AppendUint16(report, uint16(len(u.User)))
		report = append(report, u.User...)
		report = binary.BigEndian.AppendUint16(report, u.Messages)
		report = binary.BigEndian.AppendUint16(report, u.Bytes)
		named++
	}
	return report, named
}

// decode calls take for each user of a report. A user's name is valid during the call. full reports
// that users were left out.
func decode(report []byte, take func(user []byte, d Demand)) (full bool, err error) {
	if len(report) == 0 || report[0] > 1 {
		return false, errors.New("it does not begin with 0 or 1")
	}
	rest := report[1:]
	for n := 0; len(rest) > 0; n++ {
		if len(rest) < 2 {
			return false, errTruncated
		}
		size := int(binary.BigEndian.Uint16(rest))
		switch {
		case n == MaxUsers:
			return false, fmt.Errorf("it has more than %d users", MaxUsers)
		case size == 0 || size > maxName:
			return false, fmt.Errorf("it has a user whose name has %d bytes", size)
		case len(rest) < useSize+size:
			return false, errTruncated
		}
		after := rest[2+size:]
		take(rest[2:2+size], Demand{binary.BigEndian.Uint16(after), binary.BigEndian.Uint16(after[2:])})
		rest = after[4:]
	}
	return report[0] == 1, nil
}
