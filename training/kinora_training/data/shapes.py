"""The outlines of sprites as signed distances, made once: polygons, and letters as strokes of a pen.

A distance rather than a picture, since coverage, bevels, soft shadows and outlines all follow from it at any size.
"""

import math

import torch

# Texels per side, and half the side in units of a shape's radius: a margin for soft edges.
TEXELS, EXTENT = 80, 1.25

# Strokes on a grid of 4 by 6, y downwards: an open line of points each.
LETTERS = {
    "A": ["0,6 2,0 4,6", "0.8,4 3.2,4"],
    "B": ["0,0 0,6 2.6,6 3.6,5.6 4,4.6 3.6,3.4 2.6,3 0,3", "2.6,3 3.4,2.6 3.7,1.6 3.4,0.5 2.6,0 0,0"],
    "C": ["4,1.2 3.2,0.3 2,0 0.9,0.4 0.2,1.6 0,3 0.2,4.4 0.9,5.6 2,6 3.2,5.7 4,4.8"],
    "D": ["0,0 0,6 1.8,6 3.2,5.4 4,4 4,2 3.2,0.6 1.8,0 0,0"],
    "E": ["4,0 0,0 0,6 4,6", "0,3 3,3"],
    "F": ["4,0 0,0 0,6", "0,3 3,3"],
    "G": ["4,1.2 3.2,0.3 2,0 0.9,0.4 0.2,1.6 0,3 0.2,4.4 0.9,5.6 2,6 3.2,5.7 4,4.8 4,3.3 2.4,3.3"],
    "H": ["0,0 0,6", "4,0 4,6", "0,3 4,3"],
    "J": ["3.4,0 3.4,4.4 2.9,5.6 1.8,6 0.7,5.5 0.2,4.4"],
    "K": ["0,0 0,6", "4,0 0,3.6", "1.4,2.5 4,6"],
    "L": ["0,0 0,6 4,6"],
    "M": ["0,6 0,0 2,3.4 4,0 4,6"],
    "N": ["0,6 0,0 4,6 4,0"],
    "P": ["0,6 0,0 2.6,0 3.6,0.5 4,1.7 3.6,2.9 2.6,3.4 0,3.4"],
    "Q": ["2,0 0.8,0.5 0.1,1.8 0,3 0.1,4.2 0.8,5.5 2,6 3.2,5.5 3.9,4.2 4,3 3.9,1.8 3.2,0.5 2,0", "2.4,4.2 4.2,6.2"],
    "R": ["0,6 0,0 2.6,0 3.6,0.5 4,1.7 3.6,2.9 2.6,3.4 0,3.4", "2.2,3.4 4,6"],
    "S": ["3.8,1.1 3,0.2 1.8,0 0.6,0.5 0.2,1.6 0.8,2.6 2,3 3.3,3.5 3.9,4.5 3.4,5.6 2.2,6 0.9,5.8 0.1,4.9"],
    "T": ["0,0 4,0", "2,0 2,6"],
    "U": ["0,0 0,4 0.5,5.4 2,6 3.5,5.4 4,4 4,0"],
    "V": ["0,0 2,6 4,0"],
    "W": ["0,0 1,6 2,2.2 3,6 4,0"],
    "X": ["0,0 4,6", "4,0 0,6"],
    "Y": ["0,0 2,3 4,0", "2,3 2,6"],
    "Z": ["0,0 4,0 0,6 4,6"],
    "2": ["0.2,1.5 0.8,0.4 2,0 3.3,0.4 3.8,1.6 3.3,2.9 0.1,6 4,6"],
    "3": ["0.4,0.8 1.8,0 3.3,0.5 3.6,1.6 3,2.7 1.8,3 3.3,3.4 3.9,4.5 3.3,5.6 1.8,6 0.2,5.2"],
    "4": ["3,6 3,0 0,4.2 4.2,4.2"],
    "5": ["3.8,0 0.6,0 0.3,2.7 2,2.3 3.5,3 3.9,4.2 3.3,5.5 1.9,6 0.2,5.3"],
    "8": [
        "2,2.9 0.7,2.3 0.4,1.3 1,0.3 2,0 3,0.3 3.6,1.3 3.3,2.3 2,2.9 "
        "0.6,3.6 0.1,4.6 0.7,5.6 2,6 3.3,5.6 3.9,4.6 3.4,3.6 2,2.9"
    ],
}
PEN = 0.23


def regular(corners, turn=0.0, radius=1.0):
    angles = [2 * math.pi * i / corners + turn - math.pi / 2 for i in range(corners)]
    return [(radius * math.cos(a), radius * math.sin(a)) for a in angles]


def polar(radius, points=120):
    """A closed line from the radius at every angle, which starts at the top."""
    angles = [2 * math.pi * i / points for i in range(points)]
    return [(radius(a) * math.sin(a), -radius(a) * math.cos(a)) for a in angles]


def star(points, inner):
    outside, inside = regular(points), regular(points, math.pi / points, inner)
    return [corner for pair in zip(outside, inside, strict=True) for corner in pair]


def ellipse(width, height, points=64, centre=(0.0, 0.0)):
    angles = [2 * math.pi * i / points for i in range(points)]
    return [(centre[0] + width * math.sin(a), centre[1] - height * math.cos(a)) for a in angles]


def heart(points=96):
    at = [2 * math.pi * i / points for i in range(points)]
    curve = [
        (16 * math.sin(t) ** 3, -(13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)))
        for t in at
    ]
    return [(x / 17.0, (y - 1.5) / 16.0) for x, y in curve]


def rounded(width, height, corner, points=10):
    """A rectangle with round corners."""
    outline = []
    for quarter, (sx, sy) in enumerate([(1, -1), (1, 1), (-1, 1), (-1, -1)]):
        for i in range(points + 1):
            angle = math.pi / 2 * (quarter + i / points)
            x, y = sx * (width - corner), sy * (height - corner)
            outline.append((x + corner * math.sin(angle), y - corner * math.cos(angle)))
    return outline


def crescent(points=48):
    outside = [(math.cos(a), math.sin(a)) for a in (math.pi * (0.28 + 1.44 * i / points) for i in range(points + 1))]
    ends = outside[0]
    centre, radius = (0.42, 0.0), math.dist((0.42, 0.0), ends)
    start = math.atan2(ends[1] - centre[1], ends[0] - centre[0])
    inside = [
        (centre[0] + radius * math.cos(a), centre[1] + radius * math.sin(a))
        for a in (-start - (2 * math.pi - 2 * start) * i / points for i in range(1, points))
    ]
    return outside + inside


def drop(points=96):
    return polar(lambda a: 0.62 + 0.38 * abs(math.cos(a / 2)) ** 9, points)


# By name: closed lines; a point is inside if an odd number of them surround it.
POLYGONS = {
    "circle": [ellipse(0.95, 0.95)],
    "square": [rounded(0.8, 0.8, 0.1)],
    "tablet": [rounded(0.95, 0.62, 0.3)],
    "triangle": [regular(3)],
    "diamond": [[(0, -1), (0.72, 0), (0, 1), (-0.72, 0)]],
    "pentagon": [regular(5)],
    "hexagon": [regular(6)],
    "star": [star(5, 0.46)],
    "burst": [star(8, 0.62)],
    "spark": [star(4, 0.38)],
    "heart": [heart()],
    "ring": [ellipse(0.98, 0.98), ellipse(0.5, 0.5)],
    "frame": [rounded(0.85, 0.85, 0.15), rounded(0.42, 0.42, 0.08)],
    "cross": [
        [
            *[(-0.34, -1), (0.34, -1), (0.34, -0.34), (1, -0.34), (1, 0.34), (0.34, 0.34)],
            *[(0.34, 1), (-0.34, 1), (-0.34, 0.34), (-1, 0.34), (-1, -0.34), (-0.34, -0.34)],
        ]
    ],
    "crescent": [crescent()],
    "flower": [polar(lambda a: 0.72 + 0.26 * math.cos(6 * a))],
    "clover": [polar(lambda a: 0.66 + 0.32 * math.cos(3 * a))],
    "gear": [polar(lambda a: 0.82 + 0.14 * math.tanh(4 * math.sin(9 * a)), 180), ellipse(0.3, 0.3)],
    "arrow": [[(0, -1), (0.85, -0.1), (0.36, -0.1), (0.36, 0.9), (-0.36, 0.9), (-0.36, -0.1), (-0.85, -0.1)]],
    "bolt": [[(0.25, -1), (-0.6, 0.2), (-0.06, 0.2), (-0.3, 1), (0.62, -0.3), (0.06, -0.3)]],
    "drop": [drop()],
    "house": [[(0, -1), (0.9, -0.2), (0.68, -0.2), (0.68, 0.85), (-0.68, 0.85), (-0.68, -0.2), (-0.9, -0.2)]],
    # Parts of creatures.
    "body": [ellipse(0.8, 0.92)],
    "bean": [polar(lambda a: 0.86 + 0.08 * math.cos(2 * a) - 0.06 * math.cos(3 * a))],
    "fish": [ellipse(1.0, 0.6)],
    "leg": [rounded(0.3, 1.0, 0.29)],
    "wing": [ellipse(0.5, 1.0)],
    "tail": [[(0, 1.0), (-0.75, -0.85), (-0.3, -0.7), (0, -0.9), (0.3, -0.7), (0.75, -0.85)]],
}
NAMES = [*POLYGONS, *LETTERS]
INDEX = {name: i for i, name in enumerate(NAMES)}
PARTS = ("body", "bean", "fish", "leg", "wing", "tail")
PLAIN = [INDEX[name] for name in POLYGONS if name not in PARTS]
WRITTEN = [INDEX[name] for name in LETTERS]


def texel_places(device, texels=TEXELS):
    """x and y of every texel in units of a shape's radius, `[texels, texels]` each."""
    axis = ((torch.arange(texels, device=device) + 0.5) / texels * 2 - 1) * EXTENT
    return axis[None, :].expand(texels, texels), axis[:, None].expand(texels, texels)


def distance_to_segments(x, y, starts, ends):
    """The least distance of every point to any of the segments."""
    least = torch.full_like(x, 9.0)
    for (ax, ay), (bx, by) in zip(starts, ends, strict=True):
        dx, dy = bx - ax, by - ay
        along = (((x - ax) * dx + (y - ay) * dy) / max(dx * dx + dy * dy, 1e-9)).clamp(0, 1)
        least = torch.minimum(least, torch.hypot(x - ax - along * dx, y - ay - along * dy))
    return least


def polygon_distance(x, y, lines):
    least, inside = torch.full_like(x, 9.0), torch.zeros_like(x, dtype=torch.bool)
    for line in lines:
        ends = line[1:] + line[:1]
        least = torch.minimum(least, distance_to_segments(x, y, line, ends))
        for (ax, ay), (bx, by) in zip(line, ends, strict=True):
            if ay != by:
                crosses = (y < ay) != (y < by)
                inside ^= crosses & (x < (bx - ax) * (y - ay) / (by - ay) + ax)
    return torch.where(inside, -least, least)


def letter_distance(x, y, strokes):
    least = torch.full_like(x, 9.0)
    for stroke in strokes:
        points = [tuple(float(number) for number in point.split(",")) for point in stroke.split()]
        points = [((px - 2) * 0.27, (py - 3) * 0.265) for px, py in points]
        least = torch.minimum(least, distance_to_segments(x, y, points[:-1], points[1:]))
    return least - PEN


def atlas(device):
    """Distance of every shape, negative inside, and its direction: `[shapes, 3, texels, texels]`."""
    # On the CPU: hundreds of small operations cost no launches there, and the numbers are the same everywhere.
    x, y = texel_places("cpu")
    distances = [polygon_distance(x, y, lines) for lines in POLYGONS.values()]
    distances += [letter_distance(x, y, strokes) for strokes in LETTERS.values()]
    distance = torch.stack(distances)
    texel = 2 * EXTENT / TEXELS
    down, right = torch.gradient(distance, spacing=texel, dim=(1, 2))
    length = torch.hypot(down, right).clamp(min=1e-3)
    return torch.stack([distance, right / length, down / length], dim=1).to(device)
