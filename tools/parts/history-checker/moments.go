package main

import (
	"fmt"
	"strings"
)

// moment is when something happened: not before from, and not after to.
type moment struct {
	from, to int64
	text     string
}

// timeline is a set of moments, some of which are surely in this order. Whether they can all be is decided in the time that it takes to look at each pair.
type timeline struct {
	moments []moment
	next    [][]int
}

func (t *timeline) add(from, to int64, text string) int {
	t.moments = append(t.moments, moment{from, to, text})
	t.next = append(t.next, nil)
	return len(t.moments) - 1
}

// order says that one moment is before another.
func (t *timeline) order(first, then int) {
	t.next[first] = append(t.next[first], then)
}

// contradiction is a chain of moments that can't follow one another as they have to; empty where there is none.
func (t *timeline) contradiction() string {
	waits := make([]int, len(t.moments))
	for _, after := range t.next {
		for _, then := range after {
			waits[then]++
		}
	}
	ready := []int{}
	for at, count := range waits {
		if count == 0 {
			ready = append(ready, at)
		}
	}
	earliest, cause := make([]int64, len(t.moments)), make([]int, len(t.moments))
	for at, m := range t.moments {
		earliest[at], cause[at] = m.from, -1
	}
	done := 0
	for ; done < len(ready); done++ {
		at := ready[done]
		if earliest[at] > t.moments[at].to {
			return t.chain(cause, at)
		}
		for _, then := range t.next[at] {
			if earliest[at] > earliest[then] {
				earliest[then], cause[then] = earliest[at], at
			}
			if waits[then]--; waits[then] == 0 {
				ready = append(ready, then)
			}
		}
	}
	if done < len(t.moments) {
		return t.circle(waits)
	}
	return ""
}

// chain is how a moment came to be later than it can have been.
func (t *timeline) chain(cause []int, last int) string {
	lines := []string{}
	for at := last; at >= 0; at = cause[at] {
		lines = append([]string{t.line(at)}, lines...)
	}
	return "each of these is before the next, but there was no time for it:\n  " + strings.Join(lines, "\n  ")
}

// circle is a chain of moments that leads back to its beginning; every moment that still waits lies behind one.
func (t *timeline) circle(waits []int) string {
	before := make([]int, len(t.moments))
	start := 0
	for at, count := range waits {
		if count == 0 {
			continue
		}
		start = at
		for _, then := range t.next[at] {
			before[then] = at
		}
	}
	for range t.moments {
		start = before[start]
	}
	lines := []string{t.line(start)}
	for at := before[start]; at != start; at = before[at] {
		lines = append([]string{t.line(at)}, lines...)
	}
	return "each of these is before the next, and the last before the first:\n  " + strings.Join(lines, "\n  ")
}

func (t *timeline) line(at int) string {
	m := t.moments[at]
	if m.to == forever {
		return fmt.Sprintf("%s, at %d or later", m.text, m.from)
	}
	return fmt.Sprintf("%s, between %d and %d", m.text, m.from, m.to)
}
