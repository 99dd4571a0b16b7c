package definitions

import (
	"fmt"
	"slices"

	"sexton/internal/problem"
)

// checker checks one definition, which may be incomplete.
type checker struct {
	*Definition

	problems problem.List
}

func (c *checker) given(field string) bool {
	_, ok := c.positions[c.Key+"."+field]
	return ok
}

func (c *checker) fail(field, message, fix string) {
	path := c.Key + "." + field
	c.problems.Add(c.positions.Of(path).Problem(path, message, fix))
}

// valid reports whether the field is given and has no error yet.
func (c *checker) valid(field string) bool {
	broken := slices.ContainsFunc(c.problems, func(p problem.Problem) bool { return p.Key == c.Key+"."+field })
	return !broken && c.given(field)
}

func (c *checker) identifier(field, name string) {
	if !c.valid(field) {
		return
	}
	if err := checkIdentifier(name); err != nil {
		c.fail(field, "the name "+err.Error(), "")
	}
}

// columns checks a field that has one column name or a list of column names.
func (c *checker) columns(field string, names []string) {
	if c.valid(field) && len(names) == 0 {
		c.fail(field, "is empty", "name at least one column")
	}
	for i, name := range names {
		at := field
		if element := fmt.Sprintf("%s[%d]", field, i); c.given(element) {
			at = element
		}
		c.identifier(at, name)
		if c.valid(at) && slices.Contains(names[:i], name) {
			c.fail(at, "is named twice", "")
		}
	}
}

// check adds the problems of the definition, and parses the name of the parent.
func (c *checker) check() {
	if c.valid("table") {
		var err error
		if c.Parent, err = ParseName(c.Table); err != nil {
			c.fail("table", "the name "+err.Error(), "")
		}
	}
	c.columns("column", c.Columns)
	c.columns("parent_column", c.ParentColumns)
	if c.valid("column") && c.valid("parent_column") && len(c.Columns) != len(c.ParentColumns) {
		c.fail("parent_column", "must name as many columns as column",
			"name one column of the parent for each of the child's")
	}
	c.identifier("target_column", c.TargetColumn)
	if c.valid("database") && c.Database == "" {
		c.fail("database", "is empty", "")
	}
	if c.valid("delete_limit") && c.DeleteLimit < 1 {
		c.fail("delete_limit", "must be greater than 0", "")
	}
	c.identifier("constraint.name", c.Constraint.Name)
	if c.valid("constraint.initially") && c.Constraint.Initially == Deferred && !c.Constraint.Deferrable {
		c.fail("constraint.initially", "needs deferrable: true", "")
	}
	c.target()
	c.conditions()
	for _, field := range []string{"event", "cleaner_class"} {
		if c.valid(field) && c.valid("on_delete") && c.OnDelete != Delete {
			c.fail(field, "is allowed with on_delete: async_delete only", "")
		}
	}
}

// target checks that target_column and target_value are given if, and only if, the action
// is update_column_to.
func (c *checker) target() {
	if !c.valid("on_delete") {
		return
	}
	for _, field := range []string{"target_column", "target_value"} {
		switch updates := c.OnDelete == UpdateColumn; {
		case updates && !c.given(field):
			c.fail(field, "is missing; on_delete: update_column_to needs it", "")
		case !updates && c.given(field):
			c.fail(field, "is allowed with on_delete: update_column_to only", "")
		}
	}
}

func (c *checker) conditions() {
	if c.valid("conditions") && len(c.Conditions) == 0 {
		c.fail("conditions", "is empty", "remove the key, or add a condition")
	}
	seen := map[string]bool{}
	for i, condition := range c.Conditions {
		field := fmt.Sprintf("conditions[%d].column", i)
		c.identifier(field, condition.Column)
		if c.valid(field) && seen[condition.Column] {
			c.fail(field, "is the column of an earlier condition; a row cannot have two values", "")
		}
		seen[condition.Column] = true
	}
}
