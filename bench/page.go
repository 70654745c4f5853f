package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// A page is what the template shows: texts and pictures, with nothing left to compute.
type page struct {
	Title    string
	Report   *Report
	Date     string
	Command  []string
	Machine  string
	Servers  []pageServer
	Faults   []string
	Sections []pageSection
}

// A pageServer is what a server said of itself.
type pageServer struct{ Name, About string }

// A pageSection is one result.
type pageSection struct {
	ID, Title, About string
	Servers, Over    []string // columns of the table: medians, and ratios
	Rows             []pageRow
	Figures          []figure
}

// A pageRow is one figure of all servers.
type pageRow struct {
	Name, Better   string
	Values, Ratios []string
}

// WritePage writes the report as one HTML page that needs no other file.
func (r *Report) WritePage(w io.Writer) error {
	e := r.Environment
	p := page{
		Title: "carillon bench " + r.pageTitle(), Report: r, Date: e.Date.Format("2006-01-02 15:04 UTC"), Command: e.Command,
		Machine: strings.Join(nonEmpty(fmt.Sprintf("%d CPUs", e.CPUs), e.CPUModel, e.Kernel, e.Platform, e.Go), ", "), Faults: r.faults(),
	}
	if r.Partial {
		p.Faults = append(p.Faults, "The run was interrupted: the figures are partial.")
	}
	for _, s := range r.Servers {
		p.Servers = append(p.Servers, pageServer{s.Name, fmt.Sprintf("version %s, %s, at %s", s.Version, cut(s.Server, 24), s.URL)})
	}
	for i, result := range r.Results {
		p.Sections = append(p.Sections, result.pageSection(fmt.Sprintf("r%d", i+1), e.Repeat))
	}
	if err := pageTemplate.Execute(w, p); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// pageTitle names the scenarios and the servers.
func (r *Report) pageTitle() string {
	var scenarios, servers []string
	for i, result := range r.Results {
		if i == 0 || result.Scenario != r.Results[i-1].Scenario {
			scenarios = append(scenarios, result.Scenario)
		}
	}
	for _, s := range r.Servers {
		servers = append(servers, s.Name)
	}
	return strings.Join(scenarios, ", ") + ": " + strings.Join(servers, " and ")
}

func nonEmpty(texts ...string) (list []string) {
	for _, text := range texts {
		if text != "" {
			list = append(list, text)
		}
	}
	return list
}

func (r Result) pageSection(id string, repeat int) pageSection {
	p := r.Parameters
	about := nonEmpty("client "+r.Client, fmt.Sprintf("payload %s", byteCount(float64(p.PayloadBytes))))
	if p.PayloadBytes == 0 {
		about = about[:1]
	}
	if p.RequestRate > 0 {
		about = append(about, number(p.RequestRate)+" requests a second")
	}
	if p.ConnectRate > 0 {
		about = append(about, number(p.ConnectRate)+" connections a second")
	}
	if p.OfferedDeliveries > 0 {
		about = append(about, thousands(int64(math.Round(p.OfferedDeliveries)))+" deliveries a second offered")
	}
	if r.Scenario == scenarioConnections {
		about = append(about, fmt.Sprintf("idle for %s s", number(float64(p.DurationNS)/1e9)))
	} else {
		about = append(about, fmt.Sprintf("%s s measured after %s s of warm-up", number(float64(p.DurationNS)/1e9), number(float64(p.WarmupNS)/1e9)))
	}
	if repeat > 1 {
		about = append(about, fmt.Sprintf("medians of %d runs", repeat))
	}
	s := pageSection{ID: id, Title: r.load(), About: strings.Join(about, "; ")}
	for i, m := range r.Measured {
		s.Servers = append(s.Servers, m.Server)
		if i > 0 {
			s.Over = append(s.Over, m.Server)
		}
	}
	for _, metric := range metricsOf(r.Scenario) {
		if row, any := r.pageRow(metric); any {
			s.Rows = append(s.Rows, row)
		}
	}
	for i, h := range histogramsOf(r.Scenario) {
		s.Figures = append(s.Figures, r.figures(fmt.Sprintf("%s-h%d", id, i+1), h)...)
	}
	return s
}

// pageRow returns false for a figure that no server has.
func (r Result) pageRow(metric pageMetric) (row pageRow, any bool) {
	row.Name, row.Better = metric.name, metric.better
	for i, m := range r.Measured {
		v := metric.of(m)
		any = any || v != 0 || metric.always
		row.Values = append(row.Values, shown(v, metric.format, metric.always))
		if i == 0 {
			continue
		}
		quotient := "–"
		if q := over(metric.of(r.Measured[0]), v); q > 0 && metric.better != "" {
			quotient = fmt.Sprintf("%.2f×", q)
		}
		row.Ratios = append(row.Ratios, quotient)
	}
	return row, any
}

func shown(v float64, format func(float64) string, always bool) string {
	if v == 0 && !always {
		return "–"
	}
	return format(v)
}
