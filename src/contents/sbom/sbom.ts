import type { Digest } from '../../base/digest.ts'
import { ContentError, type ImagePackage } from '../package.ts'
import { PackageList } from '../package-list.ts'
import { cyclonedx } from './cyclonedx.ts'
import type { SbomFacts } from './forms.ts'
import { objectOfBytes } from './json.ts'
import { spdx } from './spdx.ts'
import { spdx3 } from './spdx3.ts'
import { sbomPredicates, unwrap } from './statements.ts'
import { syft } from './syft.ts'

const forms = [spdx, spdx3, cyclonedx, syft] as const

/** What an SBOM says of an image. */
export interface SbomContents extends SbomFacts {
  readonly form: (typeof forms)[number]['name']
  /** Each package URL once, sorted by it. */
  readonly packages: readonly ImagePackage[]
  /** The number of packages that have no valid package URL, and whose type is not clear. They are not among `packages`. */
  readonly unnamed: number
  /** The number of other parts without one, which tools name without it: lock files, and programs that syft recognised by their bytes. */
  readonly exempt: number
}

/**
 * Reads an SBOM, which its content makes known: SPDX 2.3 and 3.0, CycloneDX 1.4 to 1.6 and syft, all in JSON. It may be the predicate of an in-toto statement, also
 * in a DSSE envelope or a bundle of sigstore. A statement must have one of `digests` as a subject: those of the image, and of the index that it is in. Outside
 * an envelope, it may have no subjects: BuildKit writes none if the image has no name yet. Signatures are not verified: the result is what the author of the
 * document says. Files, operating systems and images are no packages.
 *
 * Throws ContentError: UNREADABLE, TOO_LARGE, UNSUPPORTED_FORM, or WRONG_DIGEST.
 */
export function packagesOfSbom(bytes: Uint8Array, { digests }: { readonly digests: readonly Digest[] }): SbomContents {
  const document = unwrap(objectOfBytes(bytes), { digests, predicates: sbomPredicates, mayLackSubject: true })
  const form = forms.find(({ recognises }) => recognises(document))
  if (form === undefined) throw new ContentError('UNSUPPORTED_FORM', 'the JSON is no SBOM: SPDX, CycloneDX and syft are read')
  const list = new PackageList()
  const facts = form.read(document, list)
  const distribution = facts.distribution ?? list.distribution()
  const { unnamed, exempt } = list
  return { ...facts, ...(distribution && { distribution }), form: form.name, packages: list.packages(), unnamed, exempt }
}
