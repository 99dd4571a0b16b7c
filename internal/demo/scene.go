package demo

import (
	"cmp"
	"context"
	"embed"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/definitions"
	"sexton/internal/each"
	"sexton/internal/jobrun"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Scene is one kind of job in the demo: what the application does that gives the job work, what there is to count,
// and how one sees at the end that nothing is wrong. All scenes play at the same time on the same data.
//
// To add one, write a file with a type that implements Scene, for which ghost_users.go is the model, and put it into
// the list in scenes; it plays where its kind is enabled, which the demo's own configuration does (internal/cli/demo). Pace,
// panel, lines, totals, times and both forms of the summary follow from the Script. Mind what the other scenes do to
// the same rows: a check must know that a row may have gone with its project, say, and an action must bear that its
// row is gone already. Act is called by one goroutine at a time.
type Scene interface {
	Script() Script
	// Plan looks at the data and says how many actions there will be. It is called once, before the first.
	Plan(ctx context.Context) (actions int64, err error)
	// Act does up to limit actions, 1 or more, in one transaction, and returns what has been committed, which may be
	// nothing. more is false when there is nothing left to do. A deadlock is no reason to end: it is called again.
	Act(ctx context.Context, limit int) (acted []Item, more bool, err error)
	// Check looks for mistakes once everything of all scenes is drained. It shares nothing with the engine.
	Check(ctx context.Context) ([]Finding, error)
}

// teller is a scene that fills in itself how it stands, as no job does it.
type teller interface {
	Tell(state *SceneState)
}

// Script is the fixed part of a scene.
type Script struct {
	// Kind is that of the job. With are further kinds that belong to it: their runs count as well.
	Kind string
	With []string
	// Title heads the scene, in at most 18 letters.
	Title string
	// Acted names the application's actions: "parents deleted". Unit names the rows that wait for the job:
	// "tombstones", and Finished what becomes of that: "paid off".
	Acted, Unit, Finished string
	// Until says what is measured: "from commit to clean". Empty where nothing is.
	Until string
	// Pace is that of a demo that ends by itself, EndlessPace that of one that does not.
	Pace, EndlessPace Pace
	// Waiting is a query for what waits: a name, a number (or NULL) and since when. Together, the name and the number
	// are an Item. Schemas are those of pgcatalog.Names.Render.
	Waiting string
	// Processed is the number in the statistics of a run that counts what is finished, Numbers are further ones that are
	// worth a place in the summary, and Rows the numbers by table.
	Processed string
	Numbers   []string
	Rows      []RowCount
}

// RowCount is a number by table in the statistics of a run.
type RowCount struct {
	// Name is its key there, Done says what was done to the rows: "deleted".
	Name, Done string
}

// Pace is how much the application does, and how fast.
type Pace struct {
	// Share of what there is, in percent.
	Share int64
	// Length is how long all actions take, unless that would be fewer than Slowest a second.
	Length  time.Duration
	Slowest float64
}

// Item is something that has been given to a job, by the names that the Script's query gives it. An action after
// which there is nothing to wait for has the zero Item: it is counted and not timed.
type Item struct {
	Name   string
	Number int64
}

// Finding is one number that a check has found.
type Finding struct {
	// Name is its key in the summary, Text what follows the number where people read it.
	Name, Text string
	Count      int64
	// Fault reports that anything but 0 is a mistake.
	Fault bool
}

// stage is where scenes play: the database, and what they know of each other.
type stage struct {
	pool        *pgxpool.Pool
	names       pgcatalog.Names
	definitions []definitions.Definition
	// objects is the folder to which diffs are moved.
	objects string
	// endless reports that the demo goes on until it is stopped.
	endless bool
	ledger  *ledger
	// share, if set, replaces that of the pace.
	share int64
}

func newStage(site Site, endless bool) stage {
	return stage{pool: site.Pool, names: site.Names, definitions: site.Definitions, objects: site.Objects, endless: endless, ledger: &ledger{}}
}

//go:embed queries
var queries embed.FS

// query is one of the folder, with the schemas "public" and "sexton".
func query(name string) string { return pgcatalog.Texts{Files: queries}.Statement(name) }

// row reads the one row of a query. Its name says in errors what it does.
func (on stage) row(ctx context.Context, name string, into []any, args ...any) error {
	return named(name, on.pool.QueryRow(ctx, on.names.Render(query(name)), args...).Scan(into...))
}

// ids reads the rows of a query.
func (on stage) ids(ctx context.Context, name string, args ...any) ([]int64, error) {
	rows, _ := on.pool.Query(ctx, on.names.Render(query(name)), args...)
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	return found, named(name, err)
}

// findings reads what a check finds.
func (on stage) findings(ctx context.Context, name string, args ...any) ([]Finding, error) {
	rows, _ := on.pool.Query(ctx, on.names.Render(query(name)), args...)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Finding])
	return found, named(name, err)
}

// record runs the statements of a file that keeps for the check what is there now.
func (on stage) record(ctx context.Context, name string) error {
	_, err := on.pool.Exec(ctx, on.names.Render(query(name)))
	return named(name, err)
}

func named(query string, err error) error {
	return problem.Doing(err, "%s", strings.ReplaceAll(query, "_", " "))
}

// of is how many of so many rows a scene acts on.
func (on stage) of(script Script, rows int64) int64 {
	return (rows*cmp.Or(on.share, script.pace(on.endless).Share) + 99) / 100
}

// span is a range of keys.
type span struct{ first, last int64 }

// anywhere finds rows from some key on or, where none is left behind it, from the first one on.
func (s span) anywhere(find func(from int64) ([]int64, error)) ([]int64, error) {
	found, err := find(s.first + rand.Int64N(s.last-s.first+1))
	if err == nil && len(found) == 0 {
		found, err = find(s.first)
	}
	return found, err
}

// items are rows of one name.
func items(name string, ids []int64) []Item {
	return each.Of(ids, func(id int64) Item { return Item{name, id} })
}

// ledger remembers what the application itself has deleted, so that the checks of other scenes can tell it from what
// has gone for no reason.
type ledger struct {
	mu      sync.Mutex
	deleted map[string][]int64
}

func (l *ledger) add(table string, ids []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deleted == nil {
		l.deleted = map[string][]int64{}
	}
	l.deleted[table] = append(l.deleted[table], ids...)
}

func (l *ledger) of(table string) []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return orNone(l.deleted[table])
}

// orNone is an array that is not NULL.
func orNone(ids []int64) []int64 { return append([]int64{}, ids...) }

// scenes are those of the kinds that are enabled, in the order in which they are shown.
func scenes(on stage, site Site) []Scene {
	var playing []Scene
	all := []Scene{newLooseForeignKeys(on), &ghostUsers{stage: on}, &placeholderUsers{stage: on}, &groups{stage: on}, &diffs{stage: on}, newUndone(on, site)}
	for _, scene := range all {
		if slices.Contains(site.Kinds, scene.Script().Kind) {
			playing = append(playing, scene)
		}
	}
	return playing
}

// pace is that of a demo that ends by itself, or of one that does not.
func (s Script) pace(endless bool) Pace {
	if endless {
		return s.EndlessPace
	}
	return s.Pace
}

// SceneState is how a scene stands.
type SceneState struct {
	Script Script
	// Acted are the application's own actions, of those Planned; Done reports that there will be no more.
	Acted, Planned int64
	Done           bool
	// Backlog counts waiting rows, Oldest is the age of the first of it.
	Backlog int64
	Oldest  time.Duration
	// Tally is the work that the job has done so far, RowsPerSecond how fast it did so lately.
	Tally         Tally
	RowsPerSecond float64
	// Latency is from the commit of an action to the moment in which its item is gone.
	Latency jobrun.Percentiles
	// Activity says what the worker does or what it waits for.
	Activity string
}
