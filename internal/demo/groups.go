package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

const (
	groupDestroyKind    = "group_destroy"
	adjournedGroupsKind = "adjourned_group_deletion"
	// fewestTrees is how many whole trees there have to be; with fewer, groups with projects and without sub-groups are taken.
	fewestTrees = 4
	// restoredEvery is the group, in the order of their marks, that is restored in time.
	restoredEvery = 3
	// restoredAfter is how many further groups are marked before that.
	restoredAfter = 2
)

// groups has the deletion of groups scheduled, with all that is below them, as an administrator. For most of them the
// period is over, as if they had been marked weeks ago, and their trees are taken down; the others are restored in time.
type groups struct {
	stage

	initiator int64
	// since is the last event of what came before.
	since int64
	// steps are still to be done.
	steps []groupStep
}

// groupStep marks a group or, with restore, takes that back. Restored reports that this is how the group ends.
type groupStep struct {
	group             int64
	restored, restore bool
}

// Script tells of groups.
func (*groups) Script() Script {
	return Script{
		Kind: groupDestroyKind, With: []string{adjournedGroupsKind}, Title: "groups",
		Acted: "marks and restores", Unit: "groups", Finished: "destroyed", Until: "from due to destroyed",
		Pace:        Pace{Share: 30, Length: 20 * time.Second, Slowest: 3},
		EndlessPace: Pace{Share: 60, Length: 10 * time.Minute, Slowest: 0.05},
		Waiting:     query("waiting_groups"),
		Processed:   "groups", Numbers: []string{"projects", "groups_enqueued", "groups_restored"},
		Rows: []RowCount{{"deleted", "deleted"}, {"nullified", "nullified"}},
	}
}

// Plan picks trees in which nothing is marked, and what is to become of each.
func (g *groups) Plan(ctx context.Context) (int64, error) {
	if err := g.row(ctx, "begin_groups", []any{&g.initiator, &g.since}); err != nil {
		return 0, err
	}
	if err := g.record(ctx, "record_marks"); err != nil {
		return 0, err
	}
	trees, err := g.trees(ctx)
	if err != nil || len(trees) == 0 {
		return 0, err
	}
	// The fullest is one of the restored ones, where there are two: a small data set has most of what the other scenes
	// look at below one group.
	fullest, others := trees[0], trees[1:]
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	trees = slices.Insert(others, min(1, len(others)), fullest)
	// One that goes and one that is restored, where there are two.
	trees = trees[:min(len(trees), max(2, int(g.of(g.Script(), int64(len(trees))))))]
	var restores []groupStep
	for i, id := range trees {
		restored := i%restoredEvery == 1
		g.steps = append(g.steps, groupStep{group: id, restored: restored})
		if restored {
			restores = append(restores, groupStep{group: id, restored: true, restore: true})
		}
		if i%restoredEvery == (1+restoredAfter)%restoredEvery && len(restores) > 1 {
			g.steps, restores = append(g.steps, restores[0]), restores[1:]
		}
	}
	g.steps = append(g.steps, restores...)
	return int64(len(g.steps)), nil
}

// trees are the groups that may be marked, those with the most merge requests first; none stands below another.
func (g *groups) trees(ctx context.Context) ([]int64, error) {
	found, err := g.ids(ctx, "whole_trees")
	if err != nil || len(found) >= fewestTrees {
		return found, err
	}
	return g.ids(ctx, "single_groups")
}

// Act marks and restores groups. Only groups that are to go are timed.
func (g *groups) Act(ctx context.Context, limit int) (acted []Item, more bool, err error) {
	steps := g.steps[:min(limit, len(g.steps))]
	err = pgx.BeginFunc(ctx, g.pool, func(tx pgx.Tx) error {
		for _, step := range steps {
			if err := g.take(ctx, tx, step); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	g.steps = g.steps[len(steps):]
	for _, step := range steps {
		item := Item{} // A group that is restored has nothing to wait for.
		if !step.restored {
			item = Item{"groups", step.group}
		}
		acted = append(acted, item)
	}
	return acted, len(g.steps) > 0, nil
}

func (g *groups) take(ctx context.Context, tx pgx.Tx, step groupStep) error {
	if step.restore {
		return g.ask(ctx, tx, `SELECT "sexton".cancel_group_deletion($1, $2)`, "restore", step.group)
	}
	if _, err := tx.Exec(ctx, g.names.Render(query("record_mark")), step.group, step.restored); err != nil {
		return fmt.Errorf("look below group %d: %w", step.group, err)
	}
	if err := g.ask(ctx, tx, `SELECT "sexton".schedule_group_deletion($1, $2)`, "mark", step.group); err != nil || step.restored {
		return err
	}
	_, err := tx.Exec(ctx, g.names.Render(query("date_back_mark")), step.group)
	return problem.Doing(err, "date back the mark of group %d", step.group)
}

// ask goes through one of the doors.
func (g *groups) ask(ctx context.Context, tx pgx.Tx, door, verb string, id int64) error {
	var done bool
	err := tx.QueryRow(ctx, g.names.Render(door), id, g.initiator).Scan(&done)
	if err == nil && !done {
		err = errors.New("it was done before")
	}
	return problem.Doing(err, "%s group %d", verb, id)
}

// Check looks for groups and projects that should be gone, for rows that still name them, for events that are missing or
// tell of a parent before its children, and for restored groups that are not what they were. Projects that the
// application has deleted itself have no event, and may be missing from restored groups.
func (g *groups) Check(ctx context.Context) ([]Finding, error) {
	below, err := g.rowsBelow(ctx)
	if err != nil {
		return nil, fmt.Errorf("look below destroyed groups: %w", err)
	}
	return g.findings(ctx, "check_groups", g.since, g.ledger.of("projects"), below)
}

// rowsBelow counts the rows of all tables that name a destroyed group or project, by the names of their columns: most of
// them have no foreign key.
func (g *groups) rowsBelow(ctx context.Context) (total int64, err error) {
	rows, _ := g.pool.Query(ctx, query("columns_below"), quoted(g.names.Tracked))
	count := func(table, where, column, of string) string {
		return fmt.Sprintf("SELECT count(*) FROM %s WHERE %s%s IN (SELECT unnest(marked.%s) FROM demo.marked WHERE NOT marked.restored)",
			quoted(g.names.Tracked, table), where, quoted(column), of)
	}
	parts := []string{
		count("members", "source_type = 'Namespace' AND ", "source_id", "groups"),
		count("members", "source_type = 'Project' AND ", "source_id", "projects"),
	}
	var table, column, of string
	if _, err := pgx.ForEachRow(rows, []any{&table, &column, &of}, func() error {
		parts = append(parts, count(table, "", column, of))
		return nil
	}); err != nil {
		return 0, err
	}
	err = g.pool.QueryRow(ctx, "SELECT sum(found.count)::bigint FROM ("+strings.Join(parts, " UNION ALL ")+") AS found").Scan(&total)
	return total, err
}
