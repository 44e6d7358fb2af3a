import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { apply as applySamples } from '../../../src/cli/apply/apply.ts'
import type { Json } from '../../../src/cli/client/client-error.ts'
import type { ClientQuery } from '../../../src/cli/client/platform-client.ts'
import { kindNamed } from '../../../src/cli/client/kinds.ts'
import { contextOf } from '../../cli/client-world.ts'
import { startControllerWorld, type ControllerWorld } from '../../kubernetes/controller-world.ts'
import { startTestServer, type TestServer } from '../../support/test-server.ts'
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

/** Fields that differ between two servers: uids, times, and who made a record. */
const ownFields = /^(?:uid|etag|createTime|updateTime|managedBy|authorizedBy|stateReason|lastSeenTime)$/

/** Returns the records of the samples, by kind, without uids, times and provenance. */
async function recordsOf(server: TestServer): Promise<Readonly<Record<string, readonly Json[]>>> {
  const { client } = contextOf(server, await server.operatorToken())
  const all = async (name: string, query: ClientQuery): Promise<readonly Json[]> => {
    const { listPath, member } = kindNamed(name)
    const records: Json[] = []
    for await (const one of client.list(listPath, member, query)) records.push(one)
    return records
  }
  const [acme] = await all('Group', { name: 'acme' })
  const found = ['Group', 'Identity', 'Role', 'RoleBinding', 'Repo', 'Subscription'].map(async (kind) => {
    const records = await all(kind, { 'uidp.descendants_of': String(acme?.['uid']) })
    const bare = records.map((record) => JSON.stringify(record, (name, value: unknown) => (ownFields.test(name) ? undefined : value)))
    return [kind, bare.toSorted().map((text) => JSON.parse(text) as Json)] as const
  })
  return Object.fromEntries(await Promise.all(found))
}

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

  test('taproot apply makes the same records of the samples as kubectl apply', async () => {
    const other = await startTestServer({})
    try {
      const apply = async (server: TestServer, text?: string): Promise<string> => {
        const context = contextOf(server, await server.operatorToken())
        const request = {
          paths: [text === undefined ? 'deploy/samples' : '-'],
          recursive: false,
          dryRun: false,
          diff: false,
          format: undefined,
          clusterIssuer: 'https://kubernetes.default.svc.cluster.local',
        }
        await applySamples(context, { ...request, readStdin: () => Promise.resolve(text ?? '') })
        return context.printed()
      }
      expect((await apply(other)).replaceAll(/.* created\n/g, '')).toBe('')
      const { RoleBinding: bindings = [], ...made } = await recordsOf(other)
      // Who creates an organisation by the API becomes its owner.
      const ofSamples = bindings.filter(({ role }) => (role as Json)['name'] !== 'owner')
      expect(bindings).toHaveLength(ofSamples.length + 1)
      expect({ ...made, RoleBinding: ofSamples }).toEqual(await recordsOf(world.server))
      const sample = readFileSync('deploy/samples/organisation.yaml', 'utf8')
      // A pause by the object is not ended here.
      for (const text of [sample, sample.replace('suspend: true', 'suspend: false')])
        expect((await apply(world.server, text)).replaceAll(/.* unchanged\n/g, '')).toBe('')
      await expect(apply(world.server, sample.replace('description: The shop\n', 'description: Another\n'))).rejects.toThrow(
        /^one document has an error: nothing was changed$/,
      )
    } finally {
      await other.stop()
    }
  })
})
