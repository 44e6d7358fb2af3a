package main

import (
	"fmt"
	"runtime"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// partition is a part of the history that is checked separately. Its operations must have an order that its specification allows.
type partition struct {
	name       string
	initial    any
	operations []porcupine.Operation
}

// step is an operation of a partition, in the form that the specification applies.
type step struct {
	apply func(state any) (bool, any)
	text  string
	// differs describes how the observed result differs from a state; nil if the text describes it completely.
	differs func(state any) string
}

func (s step) against(state any) string {
	if s.differs == nil {
		return s.text
	}
	return s.text + " " + s.differs(state)
}

func (p *partition) add(client int, call, ret int64, apply func(any) (bool, any), text string) {
	p.addStep(client, call, ret, step{apply: apply, text: text})
}

func (p *partition) addStep(client int, call, ret int64, s step) {
	p.operations = append(p.operations, porcupine.Operation{ClientId: client, Input: s, Call: call, Return: ret})
}

func (p *partition) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return p.initial },
		Step: func(state, input, _ any) (bool, any) { return input.(step).apply(state) },
	}
}

// failure is a part of the history for which there is no valid order.
type failure struct {
	Partition string `json:"partition"`
	Ops       int    `json:"ops"`
	Info      string `json:"info"`
}

// explain describes the longest valid order that was found, and the operations that cannot follow it.
func (p *partition) explain(info porcupine.LinearizationInfo) string {
	var longest []int
	for _, orders := range info.PartialLinearizations() {
		for _, order := range orders {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	state, placed := p.initial, map[int]bool{}
	for _, at := range longest {
		placed[at] = true
		_, state = p.operations[at].Input.(step).apply(state)
	}
	var left []int
	for at := range p.operations {
		if !placed[at] {
			left = append(left, at)
		}
	}
	sort.Slice(left, func(one, other int) bool { return p.operations[left[one]].Return < p.operations[left[other]].Return })
	lines := []string{fmt.Sprintf("after %d of %d operations (%v) none of these can be next:", len(longest), len(p.operations), state)}
	for _, at := range left[:min(len(left), 5)] {
		lines = append(lines, p.operations[at].Input.(step).against(state))
	}
	return strings.Join(lines, "\n  ")
}

// verdict is the printed result.
type verdict struct {
	OK         bool      `json:"ok"`
	Checked    int       `json:"checked"`
	Partitions int       `json:"partitions"`
	Failures   []failure `json:"failures"`
	Unknown    []string  `json:"unknown"`
}

// checkAll checks all partitions, in parallel on all processors. A partition that takes longer than patience is reported as unknown.
func checkAll(partitions []partition, patience time.Duration) ([]failure, []string) {
	var (
		lock     sync.Mutex
		failures = []failure{}
		unknown  = []string{}
		work     = make(chan *partition)
		running  sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for p := range work {
				result := porcupine.CheckOperationsTimeout(p.model(), p.operations, patience)
				if result == porcupine.Ok {
					continue
				}
				text := ""
				if result == porcupine.Illegal {
					_, info := porcupine.CheckOperationsVerbose(p.model(), p.operations, patience)
					text = p.explain(info)
				}
				lock.Lock()
				if result == porcupine.Illegal {
					failures = append(failures, failure{p.name, len(p.operations), text})
				} else {
					unknown = append(unknown, p.name)
				}
				lock.Unlock()
			}
		})
	}
	for at := range partitions {
		work <- &partitions[at]
	}
	close(work)
	running.Wait()
	sort.Slice(failures, func(one, other int) bool { return failures[one].Partition < failures[other].Partition })
	sort.Strings(unknown)
	return failures, unknown
}
