package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/config"
)

// shutOut counts parents that the first run after everybody's end has not confirmed. It may happen, but seldom.
const shutOut = "run for parents that were not confirmed at once"

// mix counts what was drawn, and the time that it took.
type mix struct {
	mu                   sync.Mutex
	schemas, cases, runs int
	// merged are the mixes that this one is made of.
	merged int
	counts map[string]int
	spent  map[string]time.Duration
	// phase has been going on since the time.
	phase string
	since time.Time
}

func newMix() *mix { return &mix{counts: map[string]int{}, spent: map[string]time.Duration{}} }

func (m *mix) count(what string) { m.counts[what]++ }

// add counts several at once.
func (m *mix) add(what string, n int) { m.counts[what] += n }

// clock ends one phase and begins another; an empty one is none.
func (m *mix) clock(phase string) {
	now := time.Now()
	if m.phase != "" {
		m.spent[m.phase] += now.Sub(m.since)
	}
	m.phase, m.since = phase, now
}

// describe counts what a schema that has passed was made of.
func (m *mix) describe(s *schema, pace config.Pace) {
	m.schemas++
	m.count("schema under pace " + string(pace))
	m.count(fmt.Sprintf("schema of %02d tables", len(s.tables)))
	deepest := 0
	for _, t := range s.tables {
		m.count("table with " + string(t.keying))
		m.count("table with key " + strings.Join(t.kind.types, ", "))
		if len(t.partitions) > 0 {
			m.count("table partitioned")
			if s.isParent(t) {
				m.count("table partitioned, parent")
			}
		}
		steps, cyclic := s.ancestry(t)
		if cyclic {
			m.count("table in a cycle")
		}
		deepest = max(deepest, steps)
		parents := map[*table]bool{}
		for _, r := range t.references {
			m.count("reference " + string(r.action))
			if len(r.columns) > 1 {
				m.count("reference of several columns")
			}
			switch {
			case r.parent == t:
				m.count("reference to itself")
			case parents[r.parent]:
				m.count("reference to a parent that another column refers to")
			}
			parents[r.parent] = true
			if r.kind != "" {
				m.count("reference with condition")
			}
			if r.deleteLimit > 0 {
				m.count("reference with delete limit")
			}
			if r.parent.schema != t.schema {
				m.count("reference across schemas")
			}
		}
	}
	m.count(fmt.Sprintf("schema with chain of %02d", deepest))
}

// merge adds another mix.
func (m *mix) merge(other *mix) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.merged++
	m.schemas, m.cases, m.runs = m.schemas+other.schemas, m.cases+other.cases, m.runs+other.runs
	for what, n := range other.counts {
		m.counts[what] += n
	}
}

// report logs the counts and the time per case.
func (m *mix) report(t *testing.T) {
	t.Helper()
	var total time.Duration
	for _, phase := range slices.Sorted(maps.Keys(m.spent)) {
		total += m.spent[phase]
		t.Logf("%8.2f ms per case: %s", m.spent[phase].Seconds()*1000/float64(m.cases), phase)
	}
	t.Logf("%d schemas, %d cases, %d runs of the worker, %.1f cases/s", m.schemas, m.cases, m.runs, float64(m.cases)/total.Seconds())
}

// check logs what all shapes were made of, and expects that nothing is missing where that cannot be chance: with all
// shapes and enough cases.
func (m *mix) check(t *testing.T) {
	t.Helper()
	for _, what := range slices.Sorted(maps.Keys(m.counts)) {
		t.Logf("%7d %s", m.counts[what], what)
	}
	t.Logf("%7d cases on %d schemas, %d runs of the worker", m.cases, m.schemas, m.runs)
	const shapes, enough = 3, 500
	if m.merged < shapes || m.cases < enough {
		return
	}
	for _, what := range []string{
		"late children found", "session prepared, COMMIT", "session in repeatable read", "deletions overlap", "worker waits for a session",
		"table partitioned, parent", "table in a cycle", "table with unique key", "reference to itself", "reference with condition",
		"reference of several columns", "reference across schemas", "reference to a parent that another column refers to", "reference with delete limit",
		"session statement undone", "ROLLBACK TO here", "key used again", "row that lives with a key used again",
	} {
		require.Positive(t, m.counts[what], "%s: the draws have lost it", what)
	}
	require.LessOrEqual(t, m.counts[shutOut], m.cases/100, shutOut)
}
