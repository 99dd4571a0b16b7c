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
	"pgregory.net/rapid"

	"sexton/internal/config"
)

// lateRecheck names the count of cases in which the first run after the end of all
// sessions did not recheck all parents. This happens rarely.
const lateRecheck = "run for parents that were not rechecked in the first run"

// mix counts the drawn cases by their properties, and measures the time by phase.
type mix struct {
	mu                   sync.Mutex
	schemas, cases, runs int
	// merged is the number of mixes that merge added.
	merged int
	counts map[string]int
	spent  map[string]time.Duration
	// phase is the current phase. since is the time at which the current phase began.
	phase string
	since time.Time
}

func newMix() *mix { return &mix{counts: map[string]int{}, spent: map[string]time.Duration{}} }

func (m *mix) count(what string) { m.counts[what]++ }

// add adds n to a count.
func (m *mix) add(what string, n int) { m.counts[what] += n }

// clock ends the current phase and begins another one, or none if phase is empty.
func (m *mix) clock(phase string) {
	now := time.Now()
	if m.phase != "" {
		m.spent[m.phase] += now.Sub(m.since)
	}
	m.phase, m.since = phase, now
}

// describe counts the elements of a schema whose cases have passed.
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

// merge adds the counts of another mix.
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
	t.Logf("%d schemas, %d cases, %d runs of the worker, %.1f cases/s", m.schemas, m.cases, m.runs,
		float64(m.cases)/total.Seconds())
}

// check logs all counts. If all shapes ran with enough cases, check requires that every
// kind of case occurred, because a kind is then not missing by chance.
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
		"late children found", "session prepared, COMMIT", "session in repeatable read", "deletions overlap",
		"worker waits for a session",
		"table partitioned, parent", "table in a cycle", "table with unique key", "reference to itself",
		"reference with condition",
		"reference of several columns", "reference across schemas",
		"reference to a parent that another column refers to", "reference with delete limit",
		"session statement undone", "ROLLBACK TO here", "key used again", "row kept because its parent's key was used again",
	} {
		require.Positive(t, m.counts[what], "%s: never drawn", what)
	}
	require.LessOrEqual(t, m.counts[lateRecheck], m.cases/100, lateRecheck)
}

// checkReusedKeys runs a case in which deleted keys are inserted again before the worker
// runs. Only in this case does the expected result differ from that of native foreign
// keys, which have already deleted the old children before the insert. The worker cannot
// distinguish old children from new ones and keeps both. So the rows of the twin must
// exist in our database, and the parents of all other rows must exist.
//
// Afterwards both databases are emptied, because the tables differ.
func (c *scenario) checkReusedKeys() {
	c.fill()
	before := slices.Clone(c.alive)
	c.workload()
	c.flush()
	c.readTwin()
	ours := map[rowID]bool{}
	for _, r := range c.rows(c.main) {
		ours[r.rowID] = true
	}
	for _, r := range before {
		t := c.schema.tables[r.table]
		if ours[r.rowID] || t.keying == keyless || !rapid.Bool().Draw(c.rt, "used again") {
			continue
		}
		made := t.made
		t.made = r.number
		c.runInBoth(t.insert(c.drawRow(t, c.livingRows())))
		t.made = made
		c.mix.count("key used again")
		c.readTwin()
	}
	c.fill()
	c.flush()
	x := &interleaving{scenario: c}
	x.finish()
	x.requireNoOrphans()
	c.compareReused()
	stats := c.runPass(nil)
	require.False(c.rt, stats.Changed(), "a run without work must change nothing, but: %+v", stats)

	tables := make([]string, len(c.schema.tables))
	for i, t := range c.schema.tables {
		tables[i] = t.sql()
	}
	c.runInBoth("TRUNCATE " + strings.Join(tables, ", "))
	c.script.Reset()
	c.exec(c.main, "ours", "SET sexton.truncate = 'ignore'; TRUNCATE "+strings.Join(tables, ", ")+
		"; RESET sexton.truncate;"+
		"DELETE FROM public.loose_foreign_keys_deleted_records")
	c.readTwin()
}

func (c *scenario) compareReused() {
	pending, unchecked := c.countLeft()
	require.Zero(c.rt, pending+unchecked, "tombstones are left after the run")
	ours := map[rowID]bool{}
	for _, r := range c.rows(c.main) {
		ours[r.rowID] = true
	}
	for _, r := range c.rows(c.native) {
		require.True(c.rt, ours[r.rowID], "native foreign keys leave %s %s", c.schema.tables[r.table].sql(), r.text)
		delete(ours, r.rowID)
	}
	c.mix.add("row kept because its parent's key was used again", len(ours))
}

// fill adds rows to the tables. The references may form cycles, so the native checks are
// disabled during the insert.
func (c *scenario) fill() {
	numbers := make([][]int, len(c.schema.tables))
	more := make([]int, len(c.schema.tables))
	for i, t := range c.schema.tables {
		more[i] = rapid.IntRange(0, 9).Draw(c.rt, "rows")
		numbers[i] = c.numbers(i)
		for n := range more[i] {
			numbers[i] = append(numbers[i], t.made+n)
		}
	}
	var script strings.Builder
	for i, t := range c.schema.tables {
		rows := make([]newRow, more[i])
		for n := range rows {
			rows[n] = c.drawRow(t, numbers)
		}
		if len(rows) > 0 {
			script.WriteString(t.insert(rows...) + ";\n")
		}
	}
	c.exec(c.native, "native", "SET session_replication_role = replica;\n"+script.String()+
		"RESET session_replication_role")
	// Without BEGIN all statements of a script would run in one transaction.
	c.queueSQL("BEGIN;\n" + script.String() + "COMMIT")
	c.readTwin()
}

// drawRow draws a row whose parents are among the given row numbers of each table.
func (c *scenario) drawRow(t *table, numbers [][]int) newRow {
	drawn := newRow{kind: rapid.SampledFrom(rowKinds()).Draw(c.rt, "kind"), targets: make([]int, len(t.references))}
	for i, r := range t.references {
		drawn.targets[i] = c.drawTarget(r, numbers[slices.Index(c.schema.tables, r.parent)])
	}
	return drawn
}

// drawTarget draws one of the row numbers, or -1 for NULL.
func (c *scenario) drawTarget(r *reference, numbers []int) int {
	index := rapid.IntRange(-1, len(numbers)-1).Draw(c.rt, "target")
	if index < 0 {
		return -1
	}
	c.referred[rowID{slices.Index(c.schema.tables, r.parent), numbers[index]}] = true
	return numbers[index]
}

// livingRows returns the numbers of the rows that exist in the twin, by table.
func (c *scenario) livingRows() [][]int {
	numbers := make([][]int, len(c.schema.tables))
	for _, r := range c.alive {
		numbers[r.table] = append(numbers[r.table], r.number)
	}
	return numbers
}

// workload runs transactions that may be rolled back completely or to a savepoint.
func (c *scenario) workload() {
	for range rapid.IntRange(1, 3).Draw(c.rt, "transactions") {
		c.runControl("BEGIN")
		before := c.alive
		for range rapid.IntRange(1, 4).Draw(c.rt, "statements") {
			if rapid.IntRange(0, 5).Draw(c.rt, "savepoint") == 5 {
				c.savepoint()
			}
			c.statement()
		}
		end := rapid.SampledFrom([]string{"COMMIT", "ROLLBACK"}).Draw(c.rt, "end")
		c.mix.count(end)
		c.runControl(end)
		if end == "ROLLBACK" {
			c.alive = before
		}
	}
}

func (c *scenario) savepoint() {
	c.runControl("SAVEPOINT here")
	before := c.alive
	c.statement()
	end := rapid.SampledFrom([]string{"ROLLBACK TO here", "RELEASE here"}).Draw(c.rt, "end of savepoint")
	c.mix.count(end)
	c.runControl(end)
	if end != "RELEASE here" {
		c.alive = before
	}
}

// statement runs one random statement in both databases.
func (c *scenario) statement() {
	tableIndex := rapid.IntRange(0, len(c.schema.tables)-1).Draw(c.rt, "table")
	t, numbers := c.schema.tables[tableIndex], c.numbers(tableIndex)
	kind := rapid.SampledFrom([]string{
		"delete", "delete some", "move", "delete in two tables", "insert",
		"delete in partition", "update",
	}).Draw(c.rt, "statement")
	var sql string
	switch kind {
	case "delete":
		if len(numbers) > 0 {
			sql = t.delete(rapid.SampledFrom(numbers).Draw(c.rt, "row"))
		}
	case "delete some":
		// The condition also matches rows that a native foreign key has already deleted.
		sql = fmt.Sprintf("DELETE FROM %s WHERE note %% 4 = %d", t.sql(), rapid.IntRange(0, 3).Draw(c.rt, "remainder"))
	case "delete in two tables":
		other := (tableIndex + rapid.IntRange(1, len(c.schema.tables)-1).Draw(c.rt, "other table")) % len(c.schema.tables)
		remainder := rapid.IntRange(0, 4).Draw(c.rt, "remainder")
		sql = fmt.Sprintf("WITH deleted AS (DELETE FROM %s WHERE note %% 5 = %[2]d RETURNING note) DELETE FROM %[3]s WHERE note %% 5 = %[2]d",
			t.sql(), remainder, c.schema.tables[other].sql())
	case "delete in partition":
		if len(t.partitions) > 0 {
			index := rapid.IntRange(0, len(t.partitions)-1).Draw(c.rt, "partition")
			sql = fmt.Sprintf("DELETE FROM %s WHERE note %% 3 = 0", t.partition(index))
		}
	case "insert":
		number := t.made
		sql = t.insert(c.drawRow(t, c.livingRows()))
		c.alive = append(slices.Clone(c.alive), row{rowID: rowID{tableIndex, number}})
	case "move":
		numbers = c.movable(tableIndex)
		if len(numbers) > 0 && len(t.references) > 0 {
			sql = t.setParents(rapid.SampledFrom(numbers).Draw(c.rt, "row"), c.drawRow(t, c.livingRows()).targets)
		}
	case "update":
		if len(numbers) > 0 {
			sql = t.setNote(rapid.SampledFrom(numbers).Draw(c.rt, "row"), rapid.IntRange(0, 9).Draw(c.rt, "note"))
		}
	}
	if sql != "" {
		c.mix.count(kind)
		c.runInBoth(sql)
	}
}

// movable returns the rows of a table that exist in the twin and may get other parents.
func (c *scenario) movable(table int) []int {
	var numbers []int
	for _, r := range c.alive {
		if r.table == table && !r.marked {
			numbers = append(numbers, r.number)
		}
	}
	return numbers
}
