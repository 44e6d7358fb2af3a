import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startControllerWorld, type ControllerWorld } from '../../kubernetes/controller-world.ts'
import { describeWithPart } from '../../support/parts/require-part.ts'

const section = /\n## What it looks like\n(.*?)\n## /s.exec(readFileSync('docs/kubernetes.md', 'utf8'))?.[1] ?? ''
/** The commands of the section in order, each with the output on the page. */
const steps = [...section.matchAll(/```console\n(.*?)```/gs)].flatMap(([, block = '']) =>
  block
    .split(/^\$ /m)
    .slice(1)
    .map((step) => ({ command: step.split('\n')[0] ?? '', shown: step.split('\n').slice(1).join('\n') })),
)

/** Removes what differs between runs: uids, ages, column widths and empty lines. */
const essence = (text: string): readonly string[] =>
  text
    .split('\n')
    .map((line) =>
      line
        .replaceAll(/\b[0-9a-f]{40}(?:\/[0-9a-f]{16})*/g, (uid) => `<uid of ${uid.split('/').length}>`)
        .replaceAll(/ \d+m?s(?= |$)/g, ' <age>')
        .replaceAll(/\s+/g, ' ')
        .trim(),
    )
    .filter((line) => line !== '')

describeWithPart('kube-apiserver', 'docs/kubernetes.md, what kubectl prints for deploy/samples', () => {
  let world: ControllerWorld
  beforeAll(async () => {
    world = await startControllerWorld()
  })
  afterAll(() => world?.stop())

  test('docs/kubernetes.md shows apply, wait, get and explain', () => {
    expect(new Set(steps.map(({ command }) => command.split(' ', 2).join(' ')))).toEqual(
      new Set(['kubectl apply', 'kubectl wait', 'kubectl get', 'kubectl explain']),
    )
  })

  test.each(steps)('the command works as shown: $command', async ({ command, shown }) => {
    expect(essence(await world.objects.kube.kubectl(command.split(' ').slice(1)))).toEqual(essence(shown))
  })
})
