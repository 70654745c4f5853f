package bench

import (
	"fmt"
	"math"
)

// A pageMetric is one row of the page's tables.
type pageMetric struct {
	name   string
	better string // more or less; empty: there is no ratio
	format func(float64) string
	of     func(Measured) float64 // 0 is unknown
	always bool                   // 0 is known
}

func wholeNumber(v float64) string { return thousands(int64(math.Round(v))) }
func perSecond(v float64) string   { return wholeNumber(v) + "/s" }
func bytesPerSecond(v float64) string {
	return byteCount(v) + "/s"
}

// metricsOf returns the rows of a scenario.
func metricsOf(scenario string) (list []pageMetric) {
	latency := func(prefix string, of func(Measured) Latency) {
		add := func(name string, value func(Latency) float64) {
			list = append(list, pageMetric{name: prefix + name, better: "less", format: duration, of: func(m Measured) float64 { return value(of(m)) }})
		}
		add("mean", func(l Latency) float64 { return l.Mean })
		add("p50", func(l Latency) float64 { return float64(l.P50) })
		add("p99", func(l Latency) float64 { return float64(l.P99) })
		add("p99.9", func(l Latency) float64 { return float64(l.P999) })
		add("max", func(l Latency) float64 { return float64(l.Max) })
	}
	rate := func(name string, of func(Measured) float64) {
		list = append(list, pageMetric{name: name, better: "more", format: perSecond, of: of})
	}
	cpu := func(name string, of func(Measured) *CPU) {
		list = append(list, pageMetric{name: name, better: "less", format: duration, of: func(m Measured) float64 {
			if c := of(m); c != nil {
				return c.PerDelivery
			}
			return 0
		}})
	}
	switch scenario {
	case scenarioThroughput:
		f := func(m Measured) ThroughputFigures { return valueOr(m.Throughput) }
		rate("messages published", func(m Measured) float64 { return f(m).PublishRate })
		rate("messages received", func(m Measured) float64 { return f(m).ReceiveRate })
		list = append(list, pageMetric{name: "bytes published", better: "more", format: bytesPerSecond, of: func(m Measured) float64 { return f(m).PublishBytes }},
			pageMetric{name: "bytes received", better: "more", format: bytesPerSecond, of: func(m Measured) float64 { return f(m).ReceiveBytes }})
		cpu("server CPU per message", func(m Measured) *CPU { return f(m).Server })
	case scenarioRequest:
		f := func(m Measured) RequestFigures { return valueOr(m.Request) }
		rate("requests", func(m Measured) float64 { return f(m).Rate })
		cpu("server CPU per request", func(m Measured) *CPU { return f(m).Server })
	case scenarioConnections:
		f := func(m Measured) ConnectionsFigures { return valueOr(m.Connections) }
		list = append(list, pageMetric{name: "all in after", better: "less", format: duration, of: func(m Measured) float64 { return float64(f(m).AllIn) }},
			pageMetric{name: "server memory per idle connection", better: "less", format: byteCount, of: func(m Measured) float64 { return max(0, f(m).PerConnection) }})
		cpu("server CPU per connection", func(m Measured) *CPU { return f(m).Server })
	case scenarioNoisy:
		f := func(m Measured) NoisyFigures { return valueOr(m.Noisy) }
		latency("alone: ", func(m Measured) Latency { return f(m).Alone.Latency })
		latency("beside the noise: ", func(m Measured) Latency { return f(m).Beside.Latency })
		rate("messages of the noise", func(m Measured) float64 { return f(m).Noise.ReceiveRate })
	case scenarioRequery:
		latency("change acknowledged: ", func(m Measured) Latency { return valueOr(m.Requery).Answer })
	case scenarioCluster:
		list = append(list, pageMetric{
			name: "missed by new members", format: wholeNumber, always: true,
			of: func(m Measured) float64 { return float64(valueOr(m.Cluster).Missed) },
		})
	case scenarioQuery:
		f := func(m Measured) QueryFigures { return valueOr(m.Query) }
		rate("records written", func(m Measured) float64 { return f(m).FillRate })
		for i, name := range []string{"all", "selective", "none"} {
			of := func(m Measured) KVPhase {
				figures := f(m)
				return *figures.phases()[i]
			}
			rate(name+": records scanned", func(m Measured) float64 { return of(m).Rate })
			cpu(name+": client CPU per record", func(m Measured) *CPU { return new(of(m).Client) })
			cpu(name+": server CPU per record", func(m Measured) *CPU { return of(m).Server })
		}
	case scenarioFilter, scenarioForward:
		cpu("server CPU per message", func(m Measured) *CPU {
			return medianCPU(m.Runs, func(r Run) *CPU { return r.ServerCPU })
		})
		times := func(v float64) string { return fmt.Sprintf("%.3f ×", v) }
		list = append(list, pageMetric{
			name: "over the first size", format: times, of: func(m Measured) float64 { return m.OverFirst },
		})
	case scenarioConsume:
		f := func(m Measured) ConsumeFigures { return valueOr(m.Consume) }
		rate("messages taken", func(m Measured) float64 { return f(m).Rate })
		cpu("server CPU per message taken", func(m Measured) *CPU { return f(m).Server })
	case scenarioKV:
		f := func(m Measured) KVFigures { return valueOr(m.KV) }
		for _, p := range []struct {
			name string
			of   func(KVFigures) KVPhase
		}{
			{"put", func(f KVFigures) KVPhase { return f.Put }}, {"get", func(f KVFigures) KVPhase { return f.Get }},
			{"put, one writer", func(f KVFigures) KVPhase { return f.One }}, {"watch", func(f KVFigures) KVPhase { return f.Watch }},
		} {
			rate(p.name, func(m Measured) float64 { return p.of(f(m)).Rate })
			latency(p.name+": ", func(m Measured) Latency { return p.of(f(m)).Latency })
		}
	case scenarioLog:
		f := func(m Measured) LogFigures { return valueOr(m.Log) }
		rate("records written", func(m Measured) float64 { return f(m).WriteRate })
		rate("records read", func(m Measured) float64 { return f(m).ReadRate })
	case scenarioDurable:
		rate("acks", func(m Measured) float64 { return m.AckRate })
	}
	if scenario != scenarioThroughput && scenario != scenarioNoisy && scenario != scenarioKV &&
		scenario != scenarioQuery {
		latency("latency ", func(m Measured) Latency { return m.Median })
	}
	if scenario == scenarioConnections {
		return append(list, pageMetric{name: "lost", format: wholeNumber, always: true, of: func(m Measured) float64 { return float64(m.Deliveries.Lost) }})
	}
	for _, fault := range []struct {
		name string
		of   func(Deliveries) int64
	}{
		{"lost", func(d Deliveries) int64 { return d.Lost }}, {"duplicated", func(d Deliveries) int64 { return d.Duplicated }},
		{"out of order", func(d Deliveries) int64 { return d.OutOfOrder }},
	} {
		list = append(list, pageMetric{name: fault.name, format: wholeNumber, always: true, of: func(m Measured) float64 { return float64(fault.of(m.Deliveries)) }})
	}
	return list
}

func valueOr[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// A pageHistogram is latencies of a run that the page draws.
type pageHistogram struct {
	name string // empty where there is only one
	of   func(Run) (hdr string, over []LatencyPoint)
}

func histogramsOf(scenario string) []pageHistogram {
	switch scenario {
	case scenarioKV:
		phase := func(name string, of func(*KVFigures) KVPhase) pageHistogram {
			return pageHistogram{name, func(r Run) (string, []LatencyPoint) {
				if r.KV == nil {
					return "", nil
				}
				return of(r.KV).HDR, of(r.KV).OverTime
			}}
		}
		return []pageHistogram{
			phase("put", func(f *KVFigures) KVPhase { return f.Put }), phase("get", func(f *KVFigures) KVPhase { return f.Get }),
			phase("put, one writer", func(f *KVFigures) KVPhase { return f.One }),
		}
	case scenarioNoisy:
		phase := func(name string, of func(*NoisyFigures) NoisyPhase) pageHistogram {
			return pageHistogram{name, func(r Run) (string, []LatencyPoint) {
				if r.Noisy == nil {
					return "", nil
				}
				return of(r.Noisy).HDR, of(r.Noisy).OverTime
			}}
		}
		return []pageHistogram{
			phase("alone", func(f *NoisyFigures) NoisyPhase { return f.Alone }), phase("beside the noise", func(f *NoisyFigures) NoisyPhase { return f.Beside }),
		}
	}
	return []pageHistogram{{"", func(r Run) (string, []LatencyPoint) { return r.HDR, r.OverTime }}}
}
