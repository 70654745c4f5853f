package quota

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestADivisionIsFair judges random divisions by what defines max-min fairness.
func TestADivisionIsFair(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		brokers := 1 + rng.IntN(8)
		room, floor := 1.0, 1/float64(floorPart*brokers)
		demands := make([]float64, brokers)
		for i := range demands {
			demands[i] = []float64{0, floor / 2, rng.Float64(), rng.Float64() / float64(brokers), 1}[rng.IntN(5)]
		}
		slices.Sort(demands)
		idle := 0
		for idle < brokers && demands[idle] == 0 {
			idle++
		}
		d := Divide(room, floor, idle, slices.Clone(demands[idle:]))
		sum, total := 0.0, 0.0
		for _, demand := range demands {
			portion := d.Portion(demand)
			sum += portion
			total += max(demand, floor)
			if portion < floor-1e-9 {
				t.Fatalf("%v: the portion of %v is %v, below the floor of %v", demands, demand, portion, floor)
			}
			if equal := room / float64(brokers); portion < min(demand, equal)-1e-9 {
				t.Fatalf("%v: the portion of %v is %v, below what an equal one would give", demands, demand, portion)
			}
		}
		if math.Abs(sum-room) > 1e-9 {
			t.Fatalf("%v: the portions add up to %v", demands, sum)
		}
		for i, demand := range demands {
			portion := d.Portion(demand)
			switch highest := d.Portion(demands[brokers-1]); {
			case i > 0 && portion < d.Portion(demands[i-1]):
				t.Fatalf("%v: more is demanded for less", demands)
			case total <= room && portion < demand-1e-9:
				t.Fatalf("%v: there is room for all, and %v gets %v", demands, demand, portion)
			case total > room && portion < demand-1e-9 && portion < highest-1e-9:
				t.Fatalf("%v: %v gets %v, and another one %v", demands, demand, portion, highest)
			}
		}
	}
}

// TestPortionsFollowDemand lists what a user of three brokers has at each.
func TestPortionsFollowDemand(t *testing.T) {
	for _, test := range []struct {
		why     string
		demands []float64
		want    []float64
	}{
		{"nobody demands anything", []float64{0, 0, 0}, []float64{20, 20, 20}},
		{"one demands all", []float64{1, 0, 0}, []float64{58, 1, 1}},
		{"two demand all", []float64{1, 1, 0}, []float64{29.5, 29.5, 1}},
		{"three demand all", []float64{1, 1, 1}, []float64{20, 20, 20}},
		{"what one leaves goes to the others", []float64{10. / 60, 1, 1}, []float64{10, 25, 25}},
		{"what all leave is divided", []float64{15. / 60, 30. / 60, 0}, []float64{15 + 14./3, 30 + 14./3, 1 + 14./3}},
	} {
		d := Divide(1, 1./60, 0, slices.Clone(test.demands))
		for i, demand := range test.demands {
			if got := d.Portion(demand) * 60; math.Abs(got-test.want[i]) > 1e-9 {
				t.Errorf("%s: broker %d has %v sixtieths, want %v", test.why, i, got, test.want[i])
			}
		}
	}
}
