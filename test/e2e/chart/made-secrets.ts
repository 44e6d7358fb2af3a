import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { createSecretData } from '../../../src/cli/init-secrets/secret-content.ts'
import type { SecretData } from '../../../src/cli/init-secrets/secret-plan.ts'
import { parseWanted, type Wanted } from '../../../src/cli/init-secrets/wanted.ts'
import { systemClock, systemRandom } from '../../../src/server/runtime.ts'
import type { Rendered } from './helm.ts'

/** Returns the Secrets that the Job of a rendered chart creates. Throws if there is no Job. */
export function wantedOf(objects: readonly Rendered[]): Wanted {
  const job = objects.find(({ kind }) => kind === 'Job')
  return parseWanted(job?.['spec'].template.spec.containers[0].args.at(-1))
}

/** Writes Secrets to files `<directory>/<Secret>/<entry>`, like in pods. They are removed after the test. */
export async function makeSecretFiles(wanted: Wanted): Promise<{ readonly directory: string; readonly secrets: Readonly<Record<string, SecretData>> }> {
  const directory = await mkdtemp(join(tmpdir(), 'taproot-secrets-'))
  onTestFinished(() => rm(directory, { recursive: true, force: true }))
  const secrets: Record<string, SecretData> = {}
  for (const secret of wanted.secrets) {
    const authority = secret.kind === 'certificate' ? secrets[secret.authority] : undefined
    const data = await createSecretData(secret, authority, { clock: systemClock, random: systemRandom })
    secrets[secret.name] = data
    await mkdir(join(directory, secret.name))
    for (const [entry, content] of Object.entries(data)) await writeFile(join(directory, secret.name, entry), content)
  }
  return { directory, secrets }
}
