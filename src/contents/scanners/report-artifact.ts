import { digestOf, type Digest } from '../../base/digest.ts'
import type { ManifestRecord } from '../../gen/taproot/store/v1/registry_pb.ts'
import { baseType } from './scanner-client.ts'

/** The annotation of a report with the name of the scanner, as the configuration has it. */
const scannerAnnotation = 'dev.taproot.scanner'
const manifestType = 'application/vnd.oci.image.manifest.v1+json'
const emptyType = 'application/vnd.oci.empty.v1+json'
const emptyConfig = Buffer.from('{}')

/** A report as a referrer of its image. */
export interface ReportArtifact {
  readonly mediaType: string
  readonly manifest: Uint8Array
  /** The digest of the manifest. */
  readonly digest: Digest
  readonly blobs: readonly Uint8Array[]
}

/** Returns the report of a scanner as a referrer. Equal reports of an image make equal manifests, so that a repeated push changes nothing. */
export function reportArtifact(
  report: { readonly bytes: Uint8Array; readonly type: string; readonly scanner: string },
  image: { readonly digest: Digest; readonly record: ManifestRecord },
): ReportArtifact {
  const { bytes, type, scanner } = report
  const descriptor = (mediaType: string, content: Uint8Array): object => ({ mediaType, digest: digestOf(content), size: content.length })
  // Types of artifacts have no parameters.
  const artifactType = baseType(type)
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: manifestType,
      artifactType,
      config: descriptor(emptyType, emptyConfig),
      layers: [descriptor(artifactType, bytes)],
      subject: { mediaType: image.record.mediaType, digest: image.digest, size: Number(image.record.size) },
      annotations: { [scannerAnnotation]: scanner },
    }),
  )
  return { mediaType: manifestType, manifest, digest: digestOf(manifest), blobs: [emptyConfig, bytes] }
}
