import type { TrustMaterial } from '@sigstore/verify'
import type { Digest } from '../../base/digest.ts'
import { errorMessage } from '../../base/error-text.ts'
import { answerTasks } from '../../base/task-thread.ts'
import { readSignature, readTrustedRoot, type HeldSignature } from './signature.ts'
import type { KeylessSigner } from './signature-rule.ts'

/** What the thread is asked for. `trustedRoot` is JSON. */
export type SignatureTask =
  /** Says what is wrong with a trusted root; an empty text if nothing is. */
  | { readonly kind: 'root'; readonly trustedRoot: string }
  | {
      readonly kind: 'check'
      readonly held: HeldSignature
      readonly subject: Digest
      readonly trustedRoot: string | undefined
      readonly keys: readonly string[]
    }

/** What a check found: why the signature counts for nothing, or whom it is by. */
export type CheckedSignature =
  | { readonly fault: string }
  | {
      readonly hasCertificate: boolean
      readonly signer: KeylessSigner | undefined
      readonly problem: string
      /** Those of the keys that made it. */
      readonly signedBy: readonly string[]
    }

let last: { readonly text: string; readonly material: TrustMaterial } | undefined

function trustOf(text: string | undefined): TrustMaterial | undefined {
  if (text === undefined) return undefined
  if (last?.text !== text) last = { text, material: readTrustedRoot(text) }
  return last.material
}

function check({ held, subject, trustedRoot, keys }: SignatureTask & { readonly kind: 'check' }): CheckedSignature {
  const trust = trustOf(trustedRoot)
  try {
    const { hasCertificate, signer, problem, isSignedBy } = readSignature({ ...held, bytes: Buffer.from(held.bytes) }, { subject, trust })
    return { hasCertificate, signer, problem, signedBy: keys.filter((key) => isSignedBy(key)) }
  } catch (error) {
    return { fault: errorMessage(error) }
  }
}

function problemOf(trustedRoot: string): string {
  try {
    readTrustedRoot(trustedRoot)
    return ''
  } catch (error) {
    return errorMessage(error)
  }
}

answerTasks<SignatureTask>(
  (task) => (task.kind === 'root' ? problemOf(task.trustedRoot) : check(task)),
  () => undefined,
)
