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
	// steps are still to be done, marked are the groups that have been marked.
	steps  []groupStep
	marked []*markedGroup
}

// groupStep marks a group or, with restore, takes that back.
type groupStep struct {
	group   *markedGroup
	restore bool
}

// markedGroup is a group with what stood below it when it was marked, itself included.
type markedGroup struct {
	id               int64
	restored         bool
	path             string
	groups, projects []int64
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
	trees, err := g.trees(ctx)
	if err != nil {
		return 0, err
	}
	if len(trees) == 0 {
		return 0, nil
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
		group := &markedGroup{id: id, restored: i%restoredEvery == 1}
		g.steps = append(g.steps, groupStep{group: group})
		if group.restored {
			restores = append(restores, groupStep{group: group, restore: true})
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
		item := Item{} // Who is restored has nothing to wait for.
		if !step.group.restored {
			item = Item{"groups", step.group.id}
		}
		if !step.restore {
			g.marked = append(g.marked, step.group)
		}
		acted = append(acted, item)
	}
	return acted, len(g.steps) > 0, nil
}

func (g *groups) take(ctx context.Context, tx pgx.Tx, step groupStep) error {
	group := step.group
	if step.restore {
		return g.ask(ctx, tx, `SELECT "sexton".cancel_group_deletion($1, $2)`, "restore", group.id)
	}
	err := tx.QueryRow(ctx, g.names.Render(query("look_below_group")), group.id).Scan(&group.path, &group.groups, &group.projects)
	if err != nil {
		return fmt.Errorf("look below group %d: %w", group.id, err)
	}
	if err := g.ask(ctx, tx, `SELECT "sexton".schedule_group_deletion($1, $2)`, "mark", group.id); err != nil || group.restored {
		return err
	}
	_, err = tx.Exec(ctx, g.names.Render(query("date_back_mark")), group.id)
	return problem.Doing(err, "date back the mark of group %d", group.id)
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
	var destroyed, projects []int64
	for _, group := range g.marked {
		if !group.restored {
			destroyed, projects = append(destroyed, group.groups...), append(projects, group.projects...)
		}
	}
	below, err := g.rowsBelow(ctx, destroyed, projects)
	if err != nil {
		return nil, fmt.Errorf("look below destroyed groups: %w", err)
	}
	var left, missing, early, bySystem int64
	err = g.row(ctx, "check_groups", []any{&left, &missing, &early, &bySystem}, g.since, orNone(destroyed), orNone(projects), g.ledger.of("projects"))
	if err != nil {
		return nil, err
	}
	restored, broken, err := g.countRestored(ctx)
	if err != nil {
		return nil, err
	}
	return []Finding{
		{Name: "groups", Text: "groups were to go, sub-groups included", Count: int64(len(destroyed))},
		{Name: "projects", Text: "projects in them", Count: int64(len(projects))},
		{Name: "left", Text: "of these groups and projects are left", Count: left, Fault: true},
		{Name: "rows_below", Text: "rows are left below destroyed groups", Count: below, Fault: true},
		{Name: "events_missing", Text: "of them have no event", Count: missing, Fault: true},
		{Name: "events_early", Text: "events came before those of what stood below", Count: early, Fault: true},
		{Name: "restored", Text: "groups were restored in time", Count: restored},
		{Name: "not_whole", Text: "restored groups are not what they were", Count: broken, Fault: true},
		{Name: "restored_by_system", Text: "restored, as their requester may not remove them", Count: bySystem},
	}, nil
}

// rowsBelow counts the rows of all tables that name one of the groups or projects, by the names of their columns: most of
// them have no foreign key.
func (g *groups) rowsBelow(ctx context.Context, destroyed, projects []int64) (int64, error) {
	rows, _ := g.pool.Query(ctx, query("columns_below"), quoted(g.names.Tracked))
	members := quoted(g.names.Tracked, "members")
	parts := []string{
		"SELECT count(*) FROM " + members + " WHERE source_type = 'Namespace' AND source_id = ANY ($1::bigint[])",
		"SELECT count(*) FROM " + members + " WHERE source_type = 'Project' AND source_id = ANY ($2::bigint[])",
	}
	var table, column string
	_, err := pgx.ForEachRow(rows, []any{&table, &column}, func() error {
		ids := "$1"
		if strings.HasSuffix(column, "project_id") {
			ids = "$2"
		}
		parts = append(parts, fmt.Sprintf("SELECT count(*) FROM %s WHERE %s = ANY (%s)", quoted(g.names.Tracked, table), quoted(column), ids))
		return nil
	})
	if err != nil {
		return 0, err
	}
	var total int64
	sql := "SELECT sum(found.count)::bigint FROM (" + strings.Join(parts, " UNION ALL ") + ") AS found"
	err = g.pool.QueryRow(ctx, sql, orNone(destroyed), orNone(projects)).Scan(&total)
	return total, err
}

// countRestored counts restored groups, and those among them that miss their name or anything that stood below them.
func (g *groups) countRestored(ctx context.Context) (restored, broken int64, err error) {
	deleted := g.ledger.of("projects")
	for _, group := range g.marked {
		if !group.restored {
			continue
		}
		var whole bool
		err := g.row(ctx, "restored_whole", []any{&whole}, group.id, group.path, group.groups, group.projects, deleted)
		if err != nil {
			return 0, 0, err
		}
		restored++
		if !whole {
			broken++
		}
	}
	return restored, broken, nil
}
