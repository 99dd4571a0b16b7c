package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/definitions"
	"sexton/internal/each"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
)

// Result is the foreseen result of a pass now, had it no limits.
type Result struct {
	// Definitions are in the order of child, column and parent.
	Definitions []Definition `json:"definitions"`
	Totals      Totals       `json:"totals"`
}

// Definition is one definition with its work and how Postgres would do it.
type Definition struct {
	Named

	Conditions []Condition `json:"conditions"`
	Backlog                //nolint:embeddedstructfieldcheck // the order is that of the document
	// Rows are the children of the due tombstones that the action would meet. RowsCapped reports that there are
	// more, or may be: counting stopped at a cap, ran out of time or met an error, which Findings tell.
	Rows       int64      `json:"rows"`
	RowsCapped bool       `json:"rows_capped"`
	Access     AccessPath `json:"plan"`
	// Findings are what is wrong beside missing indexes, in sentences.
	Findings []string `json:"findings"`
	// MissingIndexes are those of the child first, then those of the foreign keys below it.
	MissingIndexes []MissingIndex `json:"missing_indexes"`
	// Then are the definitions that follow on, as the rows that go are tombstones' parents themselves.
	Then []Named `json:"then"`
}

// Named names a definition.
type Named struct {
	// Child and Parent are schema.table; "public." is left out as in definitions. Column lists the columns of a
	// composite key, with commas.
	Child string `json:"child"`
	// ChildDatabase is where the child lives, and indexes are missing, if that is not the database that is planned for.
	ChildDatabase string             `json:"child_database,omitempty"`
	Column        string             `json:"column"`
	Parent        string             `json:"parent"`
	Action        definitions.Action `json:"action"`
}

// named names a definition from the place of the database that is planned for.
func named(parent *loosefk.Parent, reference *loosefk.Reference, home string) Named {
	d := reference.Definition
	n := Named{Child: reference.Child.Label(), Column: d.ColumnList(), Parent: parent.Label(), Action: d.OnDelete}
	if reference.Database != home {
		n.ChildDatabase = reference.Database
	}
	return n
}

// Condition restricts a definition to children whose column has the value, in its text form.
type Condition struct {
	Column string `json:"column"`
	Value  string `json:"value"`
}

// Backlog counts the tombstones of one parent, each number up to a cap.
type Backlog struct {
	// Pending is Due and Deferred together. PendingCapped reports that there are more of one of the two.
	Pending       int64 `json:"pending"`
	PendingCapped bool  `json:"pending_capped"`
	Due           int64 `json:"due"`
	// Deferred ones failed before and are put off: a pass would leave them alone now.
	Deferred int64 `json:"deferred"`
}

// AccessPath is how a statement of the engine finds its rows.
type AccessPath struct {
	// Node is Postgres's name of the scan, as EXPLAIN prints it; empty where the plan could not be had.
	Node string `json:"node"`
	// Index is the index that the scan goes through, in the table's schema; empty where it reads the table.
	Index string `json:"index"`
	// UsesIndex reports that the index leads straight to the rows: a scan through an index that does not begin with
	// the column reads all of it.
	UsesIndex bool `json:"uses_index"`
	// Table is the one that the plan is for: the child, or the biggest of its partitions. Pages is its size in
	// blocks of the server.
	Table string `json:"table"`
	Pages int64  `json:"pages"`
}

// MissingIndex is an index without which deletions read a whole table.
type MissingIndex struct {
	Table   string   `json:"table"`
	Columns []string `json:"columns"`
	// Why says what is there instead and, for a table below the child, which keys lead to it.
	Why string `json:"why"`
	// Create is one statement or, for a partitioned table, one per line: ready for psql, outside a transaction.
	Create string `json:"create"`
}

// Totals sum the definitions up. A tombstone counts once however many definitions it has, and so does an
// index that several definitions miss.
type Totals struct {
	Definitions    int   `json:"definitions"`
	Backlog              //nolint:embeddedstructfieldcheck // the order is that of the document
	DeleteRows     int64 `json:"delete_rows"`
	UpdateRows     int64 `json:"update_rows"`
	RowsCapped     bool  `json:"rows_capped"`
	MissingIndexes int   `json:"missing_indexes"`
	Findings       int   `json:"findings"`
}

// Limits bound what a dry run reads.
type Limits struct {
	// Tombstones caps the counts of each parent, and how many due ones have their children counted.
	Tombstones int
	// Rows caps the count of each definition.
	Rows int
	// StatementTimeout bounds each statement, and the counting for one definition. It is above zero.
	StatementTimeout time.Duration
}

// Site is one configured database as Plan sees it.
type Site struct {
	Name string
	// DB is nil while the database cannot be reached.
	DB    pgcatalog.Beginner
	Names pgcatalog.Names
	// Parents are the ones that live here.
	Parents []*loosefk.Parent
}

// Plan looks at what passes over the databases would do now, and returns that by their names, without the ones that cannot be
// reached. All of it happens in short READ ONLY transactions. What goes wrong with a single table (no privilege, no time)
// or with the database of a parent's children is a finding of its definition; the error is for a parent's own database.
func Plan(ctx context.Context, sites []Site, limits Limits) (map[string]*Result, error) {
	planners := map[string]*planner{}
	for _, site := range sites {
		if site.DB == nil {
			continue
		}
		s, err := readSurvey(ctx, site, sites, limits.StatementTimeout)
		if err != nil {
			return nil, fmt.Errorf("plan for database %s: %w", site.Name, err)
		}
		planners[site.Name] = &planner{db: site.DB, names: site.Names, limits: limits, survey: s, parents: site.Parents}
	}
	runs := map[string]*Result{}
	for _, site := range sites {
		if planners[site.Name] == nil {
			continue
		}
		run, err := planners[site.Name].plan(ctx, site.Name, planners)
		if err != nil {
			return nil, fmt.Errorf("plan for database %s: %w", site.Name, err)
		}
		runs[site.Name] = run
	}
	return runs, nil
}

// planner looks at one database.
type planner struct {
	db      pgcatalog.Beginner
	names   pgcatalog.Names
	limits  Limits
	survey  survey
	parents []*loosefk.Parent
}

// plan plans for the database of that name. The others are asked about the children that they hold.
func (p *planner) plan(ctx context.Context, name string, planners map[string]*planner) (*Result, error) {
	run := &Result{Definitions: []Definition{}}
	for _, parent := range p.parents {
		backlog, err := p.backlog(ctx, parent)
		if err != nil {
			return nil, fmt.Errorf("count tombstones of %s: %w", parent.Recorded, err)
		}
		run.Totals.Pending += backlog.Pending
		run.Totals.Due += backlog.Due
		run.Totals.Deferred += backlog.Deferred
		run.Totals.PendingCapped = run.Totals.PendingCapped || backlog.PendingCapped
		for _, reference := range parent.References {
			planned := newPlanned(parent, reference, backlog)
			if err := planned.fill(ctx, name, planners[reference.Database], parent, reference, backlog); err != nil {
				return nil, fmt.Errorf("plan definition %s: %w", reference.Definition.Key, err)
			}
			run.Definitions = append(run.Definitions, planned)
		}
	}
	slices.SortStableFunc(run.Definitions, func(a, b Definition) int {
		return cmp.Or(cmp.Compare(a.Child, b.Child), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Parent, b.Parent))
	})
	run.sum()
	return run, nil
}

func newPlanned(parent *loosefk.Parent, reference *loosefk.Reference, pending pendingKeys) Definition {
	return Definition{
		Named: named(parent, reference, parent.Database), Backlog: pending.Backlog,
		Conditions: each.Of(reference.Definition.Conditions, func(c definitions.Condition) Condition { return Condition{c.Column, string(c.Value)} }),
		Findings:   []string{}, MissingIndexes: []MissingIndex{}, Then: []Named{},
	}
}

// fill asks the children's database, if it can be reached. home is the name of the parent's.
func (d *Definition) fill(
	ctx context.Context, home string, children *planner, parent *loosefk.Parent, reference *loosefk.Reference, pending pendingKeys,
) error {
	unknown := func(why string) {
		d.RowsCapped = d.RowsCapped || pending.Due > 0
		d.Findings = append(d.Findings, why)
	}
	switch {
	case reference.Broken != "":
		unknown("tombstones of " + parent.Label() + " wait, as the definition does not fit: " + reference.Broken)
	case reference.Unreachable || children == nil:
		unknown(fmt.Sprintf("database %s cannot be reached", reference.Database))
	default:
		err := children.definition(ctx, home, parent, reference, pending, d)
		if err == nil || !reference.Remote || ctx.Err() != nil {
			return err
		}
		unknown(fmt.Sprintf("database %s: %s", reference.Database, batch.Gist(err)))
	}
	return nil
}

func (p *planner) definition(
	ctx context.Context, home string, parent *loosefk.Parent, reference *loosefk.Reference, pending pendingKeys, planned *Definition,
) error {
	if err := p.countRows(ctx, parent, reference, pending, planned); err != nil {
		return err
	}
	proven, err := p.findAccess(ctx, parent, reference, planned)
	if err != nil {
		return err
	}
	if unserved := reference.Unserved(); unserved != "" {
		planned.Findings = append(planned.Findings, unserved)
	}
	return p.readOnly(ctx, pgcatalog.Pinned(), func(tx pgx.Tx) error {
		missing, gone, err := p.survey.lacking(ctx, tx, reference, proven)
		planned.MissingIndexes, planned.Then = missing, p.followOns(home, gone)
		return err
	})
}

// followOns are the definitions whose parents are among the tables that lose rows.
func (p *planner) followOns(home string, gone []*pgcatalog.Relation) []Named {
	found := []Named{}
	for _, parent := range p.parents {
		table := p.survey.Relations[parent.OID]
		if table == nil || !slices.ContainsFunc(gone, func(t *pgcatalog.Relation) bool { return related(t, table) }) {
			continue
		}
		for _, reference := range parent.References {
			found = append(found, named(parent, reference, home))
		}
	}
	return found
}

// sum fills what the totals have from the definitions.
func (run *Result) sum() {
	run.Totals.Definitions = len(run.Definitions)
	creates := map[string]bool{}
	for _, d := range run.Definitions {
		if d.Action == definitions.Delete {
			run.Totals.DeleteRows += d.Rows
		} else {
			run.Totals.UpdateRows += d.Rows
		}
		run.Totals.RowsCapped = run.Totals.RowsCapped || d.RowsCapped
		run.Totals.Findings += len(d.Findings)
		for _, missing := range d.MissingIndexes {
			creates[d.ChildDatabase+"\x00"+missing.Create] = true
		}
	}
	run.Totals.MissingIndexes = len(creates)
}
