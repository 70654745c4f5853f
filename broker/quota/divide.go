package quota

import (
	"math"
	"slices"
)

// Division is how a limit is divided: each broker has what it demands, up to a level, and a part of
// what nobody demands.
type Division struct{ floor, level, extra float64 }

// Divide divides room among brokers with these demands, which it sorts, and idle ones without. room
// is at least the floor of all of them.
func Divide(room, floor float64, idle int, demands []float64) Division {
	d := Division{floor: floor, level: math.Inf(1)}
	left := room - float64(idle)*floor
	total := 0.0
	for _, demand := range demands {
		total += max(demand, floor)
	}
	if total <= left {
		if brokers := idle + len(demands); brokers > 0 {
			d.extra = (left - total) / float64(brokers)
		}
		return d
	}
	slices.Sort(demands)
	for i, demand := range demands {
		equal := left / float64(len(demands)-i)
		if max(demand, floor) >= equal {
			d.level = equal
			break
		}
		left -= max(demand, floor)
	}
	return d
}

// Portion returns the portion of a broker with that demand.
func (d Division) Portion(demand float64) float64 {
	return min(max(demand, d.floor), d.level) + d.extra
}
