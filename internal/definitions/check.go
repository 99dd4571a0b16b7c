package definitions

import (
	"fmt"
	"slices"

	"sexton/internal/problem"
	"sexton/internal/yamlfile"
)

// checker looks at one entry that has been decoded, perhaps in part.
type checker struct {
	entry     entry
	key       string
	positions yamlfile.Positions
	problems  problem.List
}

func (c *checker) given(field string) bool {
	_, ok := c.positions[c.key+"."+field]
	return ok
}

func (c *checker) fail(field, message, fix string) {
	path := c.key + "." + field
	c.problems.Add(c.positions.Of(path).Problem(path, message, fix))
}

// sound reports whether the field was there and readable, so that it may be judged.
func (c *checker) sound(field string) bool {
	path := c.key + "." + field
	for _, p := range c.problems {
		if p.Key == path {
			return false
		}
	}
	return c.given(field)
}

func (c *checker) identifier(field, name string) {
	if !c.sound(field) {
		return
	}
	if err := checkIdentifier(name); err != nil {
		c.fail(field, "the name "+err.Error(), "")
	}
}

// columns checks a key that has one name or a list of names.
func (c *checker) columns(field string, names []string) {
	if c.sound(field) && len(names) == 0 {
		c.fail(field, "is empty", "name at least one column")
	}
	for i, name := range names {
		at := field
		if element := fmt.Sprintf("%s[%d]", field, i); c.given(element) {
			at = element
		}
		c.identifier(at, name)
		if c.sound(at) && slices.Contains(names[:i], name) {
			c.fail(at, "is named twice", "")
		}
	}
}

// check completes the problems and returns the parent's name.
func (c *checker) check() Name {
	var parent Name
	if c.sound("table") {
		var err error
		if parent, err = ParseName(c.entry.Table); err != nil {
			c.fail("table", "the name "+err.Error(), "")
		}
	}
	c.columns("column", c.entry.Column)
	c.columns("parent_column", c.entry.ParentColumn)
	if c.sound("column") && c.sound("parent_column") && len(c.entry.Column) != len(c.entry.ParentColumn) {
		c.fail("parent_column", fmt.Sprintf("names %d, but column names %d", len(c.entry.ParentColumn), len(c.entry.Column)),
			"name one column of the parent for each of the child's")
	}
	c.identifier("target_column", c.entry.TargetColumn)
	if c.sound("database") && c.entry.Database == "" {
		c.fail("database", "is empty", "")
	}
	if c.sound("delete_limit") && c.entry.DeleteLimit < 1 {
		c.fail("delete_limit", "must be greater than 0", "")
	}
	c.target()
	c.conditions()
	if c.sound("cleaner_class") && c.sound("on_delete") && c.entry.OnDelete != Delete {
		c.fail("cleaner_class", "goes with on_delete: async_delete only", "")
	}
	return parent
}

// target checks the two keys that belong to one action alone.
func (c *checker) target() {
	if !c.sound("on_delete") {
		return
	}
	for _, field := range []string{"target_column", "target_value"} {
		switch updates := c.entry.OnDelete == UpdateColumn; {
		case updates && !c.given(field):
			c.fail(field, "is missing; on_delete: update_column_to needs it", "")
		case !updates && c.given(field):
			c.fail(field, "goes with on_delete: update_column_to only", "")
		}
	}
}

func (c *checker) conditions() {
	if c.sound("conditions") && len(c.entry.Conditions) == 0 {
		c.fail("conditions", "is empty", "remove the key, or add a condition")
	}
	seen := map[string]bool{}
	for i, condition := range c.entry.Conditions {
		field := fmt.Sprintf("conditions[%d].column", i)
		c.identifier(field, condition.Column)
		if c.sound(field) && seen[condition.Column] {
			c.fail(field, "is the column of an earlier condition; a row cannot have two values", "")
		}
		seen[condition.Column] = true
	}
}
