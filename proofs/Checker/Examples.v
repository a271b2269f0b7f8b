(** * The promises bite: small plans accepted, and broken ones that really do leave wrong data *)

From Coq Require Import ZArith List Bool.
From Redistrib.Checker Require Import Spec Check Sound.
Import ListNotations.
Open Scope Z_scope.

(** A gather on two devices, [[2{x}4] -> [4]], with the members of its one group in a given order. *)
Definition gather (group : list device) : plan :=
  let m := Mesh [2] [0; 1] in
  Plan [Dim 2 [0] 4] m [Dim 4 [] 4] m
    [Placement [2] [[0]; [1]]; Placement [1] [[0]; [0]]]
    [Step 0 1 (AllGather [group])].

Example gather_accepted : check_plan (gather [0; 1]) = true.
Proof. reflexivity. Qed.

Example gather_out_of_order_refused : check_plan (gather [1; 0]) = false.
Proof. reflexivity. Qed.

(** Out of order it is wrong indeed: device 0 would hold element 2 first. *)
Theorem gather_out_of_order_wrong : ~ redistributes (gather [1; 0]).
Proof.
  intros H. specialize (H Z (fun g => nth 0 g 0) 0 [0]). vm_compute in H. discriminate.
Qed.

(** Tiles that do not divide one another: two halves become thirds, on six devices. *)
Definition halves_to_thirds (corner_of_first : Z) : plan :=
  let m := Mesh [2; 3] [0; 1; 2; 3; 4; 5] in
  Plan [Dim 6 [0] 12] m [Dim 4 [1] 12] m
    [Placement [2] [[0]; [0]; [0]; [1]; [1]; [1]]; Placement [3] [[0]; [1]; [2]; [0]; [1]; [2]]]
    [Step 0 1 (Exchange Rounds
      [Share 4 1 0 [corner_of_first] [2]; Share 1 4 0 [4] [2]; Share 5 2 1 [8] [4]; Share 0 3 1 [0] [4]])].

Example halves_to_thirds_accepted : check_plan (halves_to_thirds 6) = true.
Proof. reflexivity. Qed.

Example halves_to_thirds_moved_refused : check_plan (halves_to_thirds 7) = false.
Proof. reflexivity. Qed.

(** With the first share one element further, device 1 lacks an element: nobody supplies it. *)
Theorem halves_to_thirds_moved_wrong : ~ redistributes (halves_to_thirds 7).
Proof.
  intros H. specialize (H Z (fun g => nth 0 g 0) 1 [2]). vm_compute in H. discriminate.
Qed.

(** All four shares in one round: those of two elements travel as four, and the count says so. *)
Definition halves_to_thirds_padded : plan :=
  let p := halves_to_thirds 6 in
  Plan (source p) (source_mesh p) (target p) (target_mesh p) (placements p)
    [Step 0 1 (Exchange Rounds [Share 4 1 0 [6] [2]; Share 1 4 0 [4] [2]; Share 5 2 0 [8] [4]; Share 0 3 0 [0] [4]])].

Example halves_to_thirds_padded_accepted : check_plan halves_to_thirds_padded = true.
Proof. reflexivity. Qed.

Example halves_to_thirds_padded_received :
  map (plan_received halves_to_thirds_padded) (range 6) = [0; 4; 4; 4; 4; 0] /\
  map (plan_received (halves_to_thirds 6)) (range 6) = [0; 2; 4; 4; 2; 0].
Proof. split; reflexivity. Qed.

Corollary halves_to_thirds_kept : promises (halves_to_thirds 6) 6.
Proof. apply check_plan_within_sound; reflexivity. Qed.

(** Arrays without elements: accepted, and still held to the tiles of their types. *)
Definition empty_gather (first second : Z) : plan :=
  let m := Mesh [2] [0; 1] in
  Plan [Dim 0 [0] 0; Dim 3 [] 3] m [Dim 0 [] 0; Dim 3 [] 3] m
    [Placement [2; 1] [[first; 0]; [second; 0]]; Placement [1; 1] [[0; 0]; [0; 0]]]
    [Step 0 1 (AllGather [[0; 1]])].

Example empty_gather_accepted : check_plan (empty_gather 0 1) = true.
Proof. reflexivity. Qed.

Example empty_gather_elsewhere_refused : check_plan (empty_gather 1 0) = false.
Proof. reflexivity. Qed.

Corollary empty_gather_kept : promises (empty_gather 0 1) 0.
Proof. apply check_plan_within_sound; reflexivity. Qed.

(** Between devices apart: halves on 0 and 1 cross to 2 and 3, which hand them on to one another. *)
Definition across (sender : device) : plan :=
  Plan [Dim 2 [0] 4] (Mesh [2] [0; 1]) [Dim 4 [] 4] (Mesh [2] [2; 3])
    [Placement [2] [[0]; [1]; [-1]; [-1]]; Placement [2] [[-1]; [-1]; [0]; [1]]; Placement [1] [[-1]; [-1]; [0]; [0]]]
    [Step 0 1 (Exchange Rounds [Share 0 2 0 [0] [2]; Share sender 3 0 [2] [2]]); Step 1 2 (AllGather [[2; 3]])].

Example across_accepted : check_plan (across 1) = true.
Proof. reflexivity. Qed.

Example across_from_nobody_refused : check_plan (across 2) = false.
Proof. reflexivity. Qed.

Example across_received : map (plan_received (across 1)) (range 4) = [0; 0; 4; 4].
Proof. reflexivity. Qed.

Corollary across_kept : promises (across 1) 4.
Proof. apply check_plan_within_sound; reflexivity. Qed.

(** Device 2 holds nothing that it could send: device 3 is left without what it lacks. *)
Theorem across_from_nobody_wrong : ~ redistributes (across 2).
Proof.
  intros H. specialize (H Z (fun g => nth 0 g 0) 3 [2]). vm_compute in H. discriminate.
Qed.

(** Nothing at all is no tile, and no step makes a tile of it. *)
Example tile_of_nothing_refused :
  check_plan (Plan [Dim 2 [] 2] (Mesh [1] [0]) [Dim 2 [] 2] (Mesh [1] [1])
    [Placement [1] [[0]; [-1]]; Placement [1] [[-1]; [0]]] [Step 0 1 DynSlice]) = false.
Proof. reflexivity. Qed.
