package integration

import (
	"slices"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"
)

// session is a transaction that begins before parents are deleted and ends later.
// Natively it comes before that deletion as a whole.
type session struct {
	conn  *pgx.Conn
	begin string
	// early statements run before the deletion, late ones, which may bring late children,
	// after it.
	early, late []string
	// end is COMMIT or ROLLBACK, of the session itself or of the transaction that it has
	// prepared under a name.
	end  string
	name string
	// lateAt and endAt are stages of the interleaving.
	lateAt, endAt int
	// deletes reports that it leaves tombstones of its own. They bear the time at which
	// the transaction began, so they may come to stand behind others that a run has
	// loaded already and wait for the next run.
	deletes bool

	// arrived and over are how far it is.
	arrived, over bool
}

// stages of the interleaving: before the first run of the worker, after it, and after the
// second one.
const stages = 3

// forecast is what the last deletions are going to do, before any session has run.
type forecast struct {
	deletes []string
	// doomed are the rows that go, by table.
	doomed [][]int
	// affected are rows that go or change with their parents, unreached the ones that
	// nothing happens to and that nothing refers to.
	affected, unreached []place
	claimed             map[place]bool
}

// drawDeletes draws statements that delete rows by their keys, and the forecast of what
// they do.
func (c *scenario) drawDeletes() *forecast {
	f := &forecast{claimed: map[place]bool{}, doomed: make([][]int, len(c.schema.tables))}
	direct := map[place]bool{}
	c.look()
	for i, t := range c.schema.tables {
		numbers := c.numbers(i)
		if len(numbers) == 0 || !c.schema.isParent(t) {
			continue
		}
		drawn := rapid.SliceOfNDistinct(rapid.SampledFrom(numbers), 0, (len(numbers)+1)/2, rapid.ID).Draw(c.rt,
			"last deletes")
		if len(drawn) > 0 {
			f.deletes = append(f.deletes, t.delete(drawn...))
		}
		for _, n := range drawn {
			direct[place{i, n}] = true
		}
	}
	before, referred := c.keep()
	c.exec(c.native, "native", "BEGIN")
	f.deletes = slices.DeleteFunc(f.deletes, func(sql string) bool { return !c.natively(sql) })
	after := c.rows(c.native)
	c.exec(c.native, "native", "ROLLBACK")

	survives := map[place]string{}
	for _, r := range after {
		survives[r.place] = r.text
	}
	for _, r := range before {
		text, there := survives[r.place]
		if !there {
			f.doomed[r.table] = append(f.doomed[r.table], r.number)
		}
		switch {
		case direct[r.place]:
		case text != r.text:
			f.affected = append(f.affected, r.place)
		case !referred[r.place]:
			f.unreached = append(f.unreached, r.place)
		}
	}
	return f
}

// free are those of the places whose rows live and which no session has taken.
func (c *scenario) free(f *forecast, places []place) []place {
	return slices.DeleteFunc(slices.Clone(places), func(p place) bool {
		return f.claimed[p] || !slices.ContainsFunc(c.alive, func(r row) bool { return r.place == p && !r.marked })
	})
}

// drawSession draws a transaction and runs it in the twin.
func (c *scenario) drawSession(f *forecast, conn *pgx.Conn, name string) *session {
	s := &session{
		conn:  conn,
		begin: rapid.SampledFrom([]string{"BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ"}).Draw(c.rt, "begin"),
		end:   rapid.SampledFrom([]string{"COMMIT", "COMMIT", "ROLLBACK"}).Draw(c.rt, "end of session"),
	}
	if c.twoPhase && rapid.IntRange(0, 2).Draw(c.rt, "prepared") == 2 {
		s.name = name
		c.mix.count("session prepared, " + s.end)
	}
	s.lateAt = rapid.IntRange(0, stages-1).Draw(c.rt, "late statements at")
	s.endAt = rapid.IntRange(s.lateAt, stages-1).Draw(c.rt, "end at")
	if s.begin != "BEGIN" {
		c.mix.count("session in repeatable read")
	}
	c.exec(c.native, "native", "BEGIN")
	alive := c.alive
	for range rapid.IntRange(0, 2).Draw(c.rt, "early statements") {
		s.early = append(s.early, c.drawStep(s, func() string { return c.drawEarly(f, s) })...)
	}
	for range rapid.IntRange(0, 3).Draw(c.rt, "late statements") {
		s.late = append(s.late, c.drawStep(s, func() string { return c.drawLate(f, s) })...)
	}
	c.exec(c.native, "native", s.end)
	if s.end == "ROLLBACK" {
		c.alive = alive
	}
	return s
}

// drawStep draws one statement, which may be taken back at once.
func (c *scenario) drawStep(s *session, draw func() string) []string {
	// It would be natural to draw the statement alone, but what is taken back must not
	// count as done.
	undone := rapid.IntRange(0, 5).Draw(c.rt, "undone") == 5
	alive, deletes := c.alive, s.deletes
	if undone {
		c.exec(c.native, "native", "SAVEPOINT step")
	}
	sql := draw()
	if sql != "" && !c.natively(sql) {
		sql, s.deletes = "", deletes
	}
	if undone {
		c.exec(c.native, "native", "ROLLBACK TO step")
		c.alive, s.deletes = alive, deletes
	} else {
		c.lookAfter(sql)
	}
	switch {
	case sql == "":
		return nil
	case undone:
		c.mix.count("session statement undone")
		return []string{"SAVEPOINT step", sql, "ROLLBACK TO step"}
	}
	return []string{sql}
}

// drawEarly draws a statement on a row that the deletion reaches. It runs before that,
// and the worker meets its lock.
func (c *scenario) drawEarly(f *forecast, s *session) string {
	candidates := c.free(f, f.affected)
	if len(candidates) == 0 {
		return ""
	}
	p := rapid.SampledFrom(candidates).Draw(c.rt, "affected row")
	f.claimed[p] = true
	t := c.schema.tables[p.table]
	kind := rapid.SampledFrom([]string{
		"early move", "early lock", "early delete", "early share",
		"early update",
	}).Draw(c.rt, "early statement")
	if kind == "early delete" && !slices.Contains(f.doomed[p.table], p.number) {
		// Others may count on what is below a row that would stay.
		kind = "early update"
	}
	c.mix.count(kind)
	switch kind {
	case "early lock":
		return "SELECT FROM " + t.sql() + " WHERE " + t.is(p.number) + " FOR UPDATE"
	case "early share":
		return "SELECT FROM " + t.sql() + " WHERE " + t.is(p.number) + " FOR KEY SHARE"
	case "early move":
		// To rows that stay: else the deletion might reach what is below this row, and
		// others count on that too.
		return t.point(p.number, c.drawRow(t, c.without(f.doomed)).targets)
	case "early delete":
		s.deletes = true
		return t.delete(p.number)
	}
	return t.renote(p.number, 100+p.number)
}

// drawLate draws a statement that runs when the parents are gone already: mostly a child
// of one of them.
func (c *scenario) drawLate(f *forecast, s *session) string {
	kind := rapid.SampledFrom([]string{
		"late insert", "late move", "late insert", "late delete",
		"late update",
	}).Draw(c.rt, "late statement")
	candidates := c.free(f, f.unreached)
	if len(candidates) == 0 || s.begin != "BEGIN" {
		// With a snapshot of its own it would fail on rows that the worker has changed
		// meanwhile for older deletions.
		kind = "late insert"
	}
	if kind == "late insert" {
		// Rows that others have made are not seen by this one.
		t := c.drawBereft(f)
		c.mix.count(kind)
		return t.insert(c.drawRow(t, c.fated(f)))
	}
	p := rapid.SampledFrom(candidates).Draw(c.rt, "unreached row")
	f.claimed[p] = true
	t := c.schema.tables[p.table]
	switch {
	case kind == "late delete":
		s.deletes = true
		c.mix.count(kind)
		return t.delete(p.number)
	case kind == "late move" && len(t.references) > 0:
		c.mix.count(kind)
		return t.point(p.number, c.drawRow(t, c.fated(f)).targets)
	}
	c.mix.count("late update")
	return t.renote(p.number, 100+p.number)
}

// drawBereft draws a table, if there is one, with a reference to doomed parents.
func (c *scenario) drawBereft(f *forecast) *table {
	tables := slices.DeleteFunc(slices.Clone(c.schema.tables), func(t *table) bool {
		return !slices.ContainsFunc(t.references,
			func(r *reference) bool { return len(f.doomed[slices.Index(c.schema.tables, r.parent)]) > 0 })
	})
	if len(tables) == 0 {
		tables = c.schema.tables
	}
	return rapid.SampledFrom(tables).Draw(c.rt, "table")
}

// fated are the living rows of each table, those that are doomed alone where there are
// any and the draw is so.
func (c *scenario) fated(f *forecast) [][]int {
	numbers := c.living()
	for i := range numbers {
		doomed := slices.DeleteFunc(slices.Clone(numbers[i]),
			func(n int) bool { return !slices.Contains(f.doomed[i], n) })
		if len(doomed) > 0 && rapid.IntRange(0, 3).Draw(c.rt, "fated") < 3 {
			numbers[i] = doomed
		}
	}
	return numbers
}

// without are the living rows of each table but for some.
func (c *scenario) without(some [][]int) [][]int {
	numbers := c.living()
	for i := range numbers {
		numbers[i] = slices.DeleteFunc(numbers[i], func(n int) bool { return slices.Contains(some[i], n) })
	}
	return numbers
}
