// What other folders may import of the contents of images. They import nothing else of it.
export { readAdvisory, type ReadAdvisory } from './matching/advisory.ts'
export { matchPackage, type Match, type MatchPlace } from './matching/match.ts'
export { subjectOf } from './matching/subject.ts'
export { packagesOfLayers } from './layers/packages-of-layers.ts'
export { ContentsJob, type ContentsObserver } from './contents-job.ts'
export { Segments } from './segments/segments.ts'
export { listPackages } from './list-packages.ts'
export { readContents } from './reading/read-contents.ts'
